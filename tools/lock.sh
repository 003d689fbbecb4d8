#!/usr/bin/env bash
# Resolve pyproject.toml into requirements.lock with the extras that `make venv` installs: all but `cpu`, which
# has an environment of its own (tools/test_cpu.sh), and `docs`. Pins already there are kept unless UPGRADE=1.
# Written for Python 3.11, the oldest that is supported.
set -euo pipefail

venv=${1:?usage: tools/lock.sh FOLDER}
extras=(corpus dev scale sweep-postgres)
if [ -n "${PIP_FIND_LINKS:-}" ]; then
  index=()
  for link in $PIP_FIND_LINKS; do
    index+=(--find-links "$link")
  done
else
  index=(--index "${TORCH_INDEX:-https://download.pytorch.org/whl/cpu}" --index-strategy unsafe-best-match)
fi

# The lock is left as it is where anything fails.
lock=$(mktemp)
trap 'rm -f "$lock"' EXIT
# A pin without `+cpu` would be kept by taking the CUDA build of PyPI, so torch is always resolved again.
if [ -e requirements.lock ]; then
  sed -E '/^torch==/d' requirements.lock >"$lock"
fi
"$venv/bin/uv" pip compile pyproject.toml "${extras[@]/#/--extra=}" --python-version 3.11 ${UPGRADE:+--upgrade} \
  "${index[@]}" --quiet --custom-compile-command "make lock" --output-file "$lock"
if grep -q '^nvidia-' "$lock"; then
  echo "the torch that was found needs CUDA; requirements.lock is not fit for use" >&2
  exit 1
fi

# `+cpu` can be had from few places; without it the same line matches the CPU build where there is
# one and the plain build elsewhere. See docs/decisions/0003-lock-without-hashes.md.
sed -E 's/^(torch==[0-9.]+)\+[a-z0-9]+/\1/' "$lock" >requirements.lock
