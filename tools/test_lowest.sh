#!/usr/bin/env bash
# Run the fast tests, and those of LIBRARIES, on the lowest versions of direct dependencies that pyproject.toml
# allows; what those depend on is the newest.
#
#   tools/test_lowest.sh .venv .venv-lowest [PYTEST_ARGUMENT...]
#
# The first environment has uv, the second one is made. Where wheels come from: see tools/install.sh.
set -euo pipefail

tools=${1:?usage: tools/test_lowest.sh FOLDER FOLDER [PYTEST_ARGUMENT...]}
venv=${2:?usage: tools/test_lowest.sh FOLDER FOLDER [PYTEST_ARGUMENT...]}
shift 2
uv=$tools/bin/uv

# `--fast` imports none of `SLOW` in tests/fast.py (numba, MLflow, PyG, Lightning, matplotlib); these few do.
LIBRARIES=(
  tests/execution
  tests/features/test_pyg_dataset.py
  tests/training/test_lightning_module.py
  tests/experiments/tracking
  tests/reports/figures
)

index=()
for link in ${PIP_FIND_LINKS:-}; do
  index+=(--find-links "$link")
done
if [ ${#index[@]} -eq 0 ]; then
  index=(--index "${TORCH_INDEX:-https://download.pytorch.org/whl/cpu}" --index-strategy unsafe-best-match)
fi

"$uv" venv --quiet --allow-existing --python "$tools/bin/python" "$venv"
"$uv" pip compile pyproject.toml --extra dev --extra scale --resolution lowest-direct --python-version 3.11 \
  "${index[@]}" --quiet --no-annotate --no-header --output-file "$venv/lowest.txt" >/dev/null
"$uv" pip install --quiet --python "$venv/bin/python" --no-deps "${index[@]}" --requirement "$venv/lowest.txt"
"$uv" pip install --quiet --python "$venv/bin/python" --no-deps --editable .
"$uv" pip check --quiet --python "$venv/bin/python"

export PATH=$PWD/$venv/bin:$PATH
python -m pytest --fast "$@"
python -m pytest "$@" "${LIBRARIES[@]}"
