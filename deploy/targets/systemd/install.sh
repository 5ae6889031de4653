#!/usr/bin/env bash
# Install systemd units for this checkout, which the user "shoal" must be able to read:
#   sudo deploy/targets/systemd/install.sh
# Then: systemctl enable --now shoal.target. With DESTDIR set, files are only written below that directory.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
source "$here/../../environment.sh"
ensure_environment requirements.lock
destination=${DESTDIR:-}

mkdir -p "$destination"/etc/{systemd/system,sysusers.d,shoal}
for unit in "$here"/*.service "$here"/*.target; do
    sed "s|/opt/shoal|$root|g" "$unit" >"$destination/etc/systemd/system/$(basename "$unit")"
done
cp "$here/shoal.sysusers" "$destination/etc/sysusers.d/shoal.conf"
if [ ! -e "$destination/etc/shoal/shoal.toml" ]; then cp "$here/shoal.toml" "$destination/etc/shoal/"; fi
if [ -z "$destination" ]; then
    systemd-sysusers
    systemctl daemon-reload
fi
