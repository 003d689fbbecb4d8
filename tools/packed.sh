#!/usr/bin/env bash
# Trains and evaluates experiments of a profile one after another, and packs each once it is finished: a rerun goes on.
# Cells that the archive named like the profile has are not computed again, unless FRESH is set. Results of other
# experiments that are in the output folder may be older than those of the archive, which stay.
# Usage: packed.sh PROFILE[/FILE] EXPERIMENT..., FILE.yaml being another parameter file of the profile than params.yaml.
set -euo pipefail
profile=${1%%/*} file=params
[[ $1 == "$profile" ]] || file=${1#*/}
params=(--params "profiles/$profile/$file.yaml")
archive=data/results/$profile
export COSTBENCH_ARCHIVE=$archive
[[ -z ${FRESH:-} ]] || COSTBENCH_ARCHIVE=
for stage in generate split features; do costbench "$stage" "${params[@]}"; done
for experiment in "${@:2}"; do
  costbench train --experiment "$experiment" "${params[@]}"
  costbench evaluate --experiment "$experiment" "${params[@]}"
  costbench results pack --compact --experiment "$experiment" "$archive" "${params[@]}"
done
