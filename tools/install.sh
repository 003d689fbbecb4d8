#!/usr/bin/env bash
# Build a virtual environment from requirements.lock, with a torch that needs no CUDA.
#
#   tools/install.sh .venv
#
# Where wheels come from: PIP_FIND_LINKS (a folder or page) if it is set and offers a torch, else
# PyPI and the PyTorch index of CPU builds. In both, `torch==2.13.0` means 2.13.0+cpu, the highest
# version that matches. Nothing is resolved (--no-deps): the lock is complete, and a resolver would
# bring CUDA in with the torch of PyPI. PYTHON names the interpreter.
set -euo pipefail

venv=${1:?usage: tools/install.sh FOLDER}
torch_index=${TORCH_INDEX:-https://download.pytorch.org/whl/cpu}

find_python() {
  local candidate
  for candidate in ${PYTHON:-} python3.11 python3.12 python3.13 python3 python; do
    if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then
      echo "$candidate"
      return
    fi
  done
  echo "costbench needs Python 3.11 or newer: none found. Name one with PYTHON=..." >&2
  exit 1
}

if ! "$venv/bin/python" -c '' >/dev/null 2>&1; then
  python=$(find_python)
  echo "creating $venv with $("$python" --version)"
  "$python" -m venv --clear "$venv"
fi

links=()
for link in ${PIP_FIND_LINKS:-}; do
  links+=(--find-links "$link")
done

if [ ! -x "$venv/bin/uv" ]; then
  "$venv/bin/python" -m pip install --quiet --disable-pip-version-check "$(grep '^uv==' requirements.lock)" \
    || echo "no uv to be had; pip does the same, slower" >&2
fi

if [ -x "$venv/bin/uv" ]; then
  install=("$venv/bin/uv" pip install --quiet --python "$venv/bin/python")
  index=(--index "$torch_index" --index-strategy unsafe-best-match)
  check=("$venv/bin/uv" pip check --python "$venv/bin/python")
else
  install=("$venv/bin/python" -m pip install --quiet --disable-pip-version-check)
  index=(--extra-index-url "$torch_index")
  check=("$venv/bin/python" -m pip check)
fi

# uv stops at an index it cannot reach, so the second one is named only where it is needed.
if [ ${#links[@]} -gt 0 ]; then
  index=("${links[@]}")
fi

"${install[@]}" --no-deps "${index[@]}" --requirement requirements.lock
"${install[@]}" --no-deps --no-build-isolation --editable .
if ! "$venv/bin/python" -c 'import torch' 2>/dev/null; then
  echo "the torch that was installed does not start: most likely a CUDA build without its libraries." >&2
  echo "Let PIP_FIND_LINKS name a place that has the +cpu wheel, or unset it, and run this again." >&2
  "$venv/bin/python" -m pip uninstall --quiet --yes torch
  exit 1
fi
"${check[@]}"
