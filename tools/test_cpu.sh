#!/usr/bin/env bash
# Install the extra `cpu` (TVM, XGBoost) beside the environment and run the tests that need it: schedules are
# built and measured on this machine, and one matmul is tuned and compared with NumPy.
#
#   tools/test_cpu.sh .venv .venv-cpu [PYTEST_ARGUMENT...]
#
# The first environment has everything else, and the second one sees it: a path file names its packages, so
# that 2 GB are not installed twice. Where wheels come from: see tools/install.sh.
set -euo pipefail

base=${1:?usage: tools/test_cpu.sh FOLDER FOLDER [PYTEST_ARGUMENT...]}
venv=${2:?usage: tools/test_cpu.sh FOLDER FOLDER [PYTEST_ARGUMENT...]}
shift 2

# Tests that skip without the extra.
TESTS=(tests/schedules/devices tests/schedules/models/test_trees.py)

packages() { "$1/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))'; }

"$base/bin/python" -c '' || { echo "$base is no environment; run make venv" >&2; exit 1; }
"$venv/bin/python" -c '' 2>/dev/null || "$base/bin/python" -m venv --without-pip --clear "$venv"
# After its own packages, so that these come first; as a site folder, since an editable install is a path file itself.
printf 'import site; site.addsitedir("%s")\n' "$(packages "$base")" >"$(packages "$venv")/zz_base.pth"

mapfile -t extra < <("$base/bin/python" -c '
import tomllib
with open("pyproject.toml", "rb") as file:
    print(*tomllib.load(file)["project"]["optional-dependencies"]["cpu"], sep="\n")')
links=()
for link in ${PIP_FIND_LINKS:-}; do
  links+=(--find-links "$link")
done
if [ -x "$base/bin/uv" ]; then
  install=("$base/bin/uv" pip install --quiet --python "$venv/bin/python")
else
  install=("$base/bin/python" -m pip --python "$venv/bin/python" install --quiet --disable-pip-version-check)
fi
# What they depend on is in the first environment.
"${install[@]}" --no-deps "${links[@]}" "${extra[@]}"
# Tests skip where the compiler is missing: here it must not be.
"$venv/bin/python" -c 'import tvm, xgboost'

"$venv/bin/python" -m pytest "${TESTS[@]}" "$@"
