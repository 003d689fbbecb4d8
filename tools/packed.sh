#!/usr/bin/env bash
# Trains and evaluates experiments of a profile one after another, and packs what is finished after each: a rerun goes on.
# Cells that the archive named like the profile has are not computed again, unless FRESH is set.
# Usage: packed.sh PROFILE EXPERIMENT...
set -euo pipefail
params=(--params "profiles/$1/params.yaml")
archive=data/results/$1
[[ -n ${FRESH:-} ]] || export COSTBENCH_ARCHIVE=$archive
for stage in generate split features; do costbench "$stage" "${params[@]}"; done
for experiment in "${@:2}"; do
  costbench train --experiment "$experiment" "${params[@]}"
  costbench evaluate --experiment "$experiment" "${params[@]}"
  costbench results pack --compact "$archive" "${params[@]}"
done
