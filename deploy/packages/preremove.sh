#!/bin/sh
# Stops Sluice before it is removed. dpkg passes the word "remove"; rpm passes the number of remaining versions.
set -e
if [ -z "${DPKG_ROOT-}" ] && [ -d /run/systemd/system ]; then
	case "$1" in
	remove | 0) systemctl disable --now sluice.socket sluice.service ;;
	esac
fi
