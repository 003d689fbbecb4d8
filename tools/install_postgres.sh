#!/usr/bin/env bash
# Make PostgreSQL's server programs available for the test of sweeps on several machines: use what is there,
# or, as root on Debian and its relatives, install the package. Prints the folder of initdb and pg_ctl.
set -euo pipefail

found() {
  if command -v initdb >/dev/null && command -v pg_ctl >/dev/null; then
    dirname "$(readlink -f "$(command -v initdb)")"
  else
    # Debian keeps them out of PATH, one folder a version.
    find /usr/lib/postgresql -path '*/bin/initdb' -printf '%h\n' 2>/dev/null | sort -V | tail -n 1 | grep .
  fi
}

if found; then
  exit 0
fi
if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null; then
  echo "PostgreSQL is not installed; as root on Debian or Ubuntu this script installs it" >&2
  exit 1
fi
# The package would otherwise create and start a cluster of its own.
mkdir -p /etc/postgresql-common/createcluster.d
echo "create_main_cluster = false" >/etc/postgresql-common/createcluster.d/costbench.conf
apt-get update -qq >&2
DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends postgresql >&2
found
