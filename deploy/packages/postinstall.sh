#!/bin/sh
# An update restarts Sluice if it runs; its sockets stay open. A first installation starts nothing, because the
# settings in /etc/sluice come first.
set -e
if [ -z "${DPKG_ROOT-}" ] && [ -d /run/systemd/system ]; then
	systemctl daemon-reload
	systemctl try-restart sluice.service
fi
