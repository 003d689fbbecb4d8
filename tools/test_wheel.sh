#!/usr/bin/env bash
# Build the wheel, install it into empty environments, and run tests/wheel there: a project, its pipeline, `tune`.
#
#   tools/test_wheel.sh .venv .venv-wheel [PYTEST_ARGUMENT...]
#
# The first environment has uv and pytest. Of the second name are made: one with the Python of the first
# (.venv-wheel), and one with the newest other one that is found or that NEWEST_PYTHON names (.venv-wheel-newest).
# Where wheels come from: see tools/install.sh. Where only torch with CUDA is to be had, gigabytes, it is left out, and
# the tests run what needs none.
set -euo pipefail

base=${1:?usage: tools/test_wheel.sh FOLDER FOLDER [PYTEST_ARGUMENT...]}
venv=${2:?usage: tools/test_wheel.sh FOLDER FOLDER [PYTEST_ARGUMENT...]}
shift 2
uv=$base/bin/uv
torch_needs='^(torch|nvidia-|cuda-|triton)'

index=()
for link in ${PIP_FIND_LINKS:-}; do
  index+=(--find-links "$link")
done
if [ ${#index[@]} -eq 0 ]; then
  index=(--index "${TORCH_INDEX:-https://download.pytorch.org/whl/cpu}" --index-strategy unsafe-best-match)
fi

version() { "$1" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null; }

newest_other() {
  local own minor candidate
  own=$(version "$base/bin/python")
  for minor in 14 13 12 11; do
    [ "3.$minor" = "$own" ] && continue
    for candidate in ${NEWEST_PYTHON:-} "python3.$minor" "$HOME"/.pyenv/versions/3."$minor".*/bin/python; do
      if [ "$(version "$candidate")" = "3.$minor" ]; then
        echo "$candidate"
        return
      fi
    done
  done
}

install() { # PYTHON FOLDER: makes an environment of the wheel and nothing else
  "$uv" venv --quiet --clear --python "$1" "$2"
  "$uv" pip compile --quiet --no-header --no-annotate --python "$2/bin/python" --constraint requirements.lock \
    "${index[@]}" --output-file "$2/pins.txt" - <<<"costbench[jax,scale] @ file://$wheel" >/dev/null
  if grep -q '^nvidia-' "$2/pins.txt"; then
    echo "Python $(version "$1"): no torch without CUDA is to be had; what needs torch is not tested"
    grep -vE "$torch_needs" "$2/pins.txt" >"$2/without_torch.txt"
    "$uv" pip install --quiet --python "$2/bin/python" --no-deps "${index[@]}" --requirement "$2/without_torch.txt"
  else
    "$uv" pip install --quiet --python "$2/bin/python" --no-deps "${index[@]}" --requirement "$2/pins.txt"
    "$uv" pip check --quiet --python "$2/bin/python"
  fi
}

dist=$(mktemp -d)
trap 'rm -rf "$dist"' EXIT
"$uv" build --quiet --wheel --no-build-isolation --python "$base/bin/python" --out-dir "$dist"
wheel=$(echo "$dist"/*.whl)
echo "$(basename "$wheel"): $(($(stat -c %s "$wheel") >> 10)) KiB"

# Code that the tests before this compiled is of the same sources: nothing is compiled twice.
export NUMBA_CACHE_DIR=${NUMBA_CACHE_DIR:-$PWD/src/costbench/__pycache__}
run_tests() { # FOLDER [PYTEST_ARGUMENT...]
  COSTBENCH_WHEEL_ENVIRONMENT=$PWD/$1 "$base/bin/python" -m pytest tests/wheel "${@:2}"
}

status=0
install "$base/bin/python" "$venv"
other=$(newest_other)
if [ -n "$other" ]; then
  install "$other" "$venv-newest"
  run_tests "$venv-newest" "$@" >"$dist/log" 2>&1 &
  second=$!
fi
echo "Python $(version "$venv/bin/python"), in $venv"
run_tests "$venv" "$@" || status=1
if [ -n "$other" ]; then
  wait "$second" || status=1
  echo "Python $(version "$venv-newest/bin/python"), in $venv-newest"
  cat "$dist/log"
fi
exit "$status"
