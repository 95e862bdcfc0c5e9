#!/bin/sh
# An update restarts Sluice if it is running; its sockets stay open. A first installation starts nothing, because
# the settings in /etc/sluice have to be edited first.
set -e
if [ -z "${DPKG_ROOT-}" ] && [ -d /run/systemd/system ]; then
	systemctl daemon-reload
	systemctl try-restart sluice.service
fi
