#!/bin/sh
# Stops Sluice when it is removed. dpkg passes the word remove, and rpm the number of versions that stay.
set -e
if [ -z "${DPKG_ROOT-}" ] && [ -d /run/systemd/system ]; then
	case "$1" in
	remove | 0) systemctl disable --now sluice.socket sluice.service ;;
	esac
fi
