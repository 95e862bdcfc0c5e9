#!/bin/sh
set -e
if [ -z "${DPKG_ROOT-}" ] && [ -d /run/systemd/system ]; then
	systemctl daemon-reload
fi
