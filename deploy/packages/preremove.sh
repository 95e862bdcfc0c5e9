#!/bin/sh
# Stops Sluice before its removal. dpkg passes the word remove, and rpm the number of versions that remain.
set -e
if [ -z "${DPKG_ROOT-}" ] && [ -d /run/systemd/system ]; then
	case "$1" in
	remove | 0) systemctl disable --now sluice.socket sluice.service ;;
	esac
fi
