#!/usr/bin/env bash
# Trains and evaluates experiments of a profile one after another, seed by seed, and packs each seed once it is finished: a
# rerun goes on, and where the machine is lost, the archive has all seeds before. SEEDS=1 computes the first seed alone.
# An experiment that the archive has whole is gone through once.
# Cells that the archive named like the profile, or ARCHIVE, has are not computed again, unless FRESH is set. Results of other
# experiments that are in the output folder may be older than those of the archive, which stay.
# Usage: packed.sh PROFILE[/FILE] EXPERIMENT..., FILE.yaml being another parameter file of the profile than params.yaml. ARCHIVE is
# another folder than the profile's.
set -euo pipefail
profile=${1%%/*} file=params
[[ $1 == "$profile" ]] || file=${1#*/}
params=(--params "profiles/$profile/$file.yaml")
archive=${ARCHIVE:-data/results/$profile}
export COSTBENCH_ARCHIVE=$archive
[[ -z ${FRESH:-} ]] || COSTBENCH_ARCHIVE=
for stage in generate split features; do costbench "$stage" "${params[@]}"; done
for experiment in "${@:2}"; do
  commas=$(costbench params "experiments.$experiment.seeds" "${params[@]}" | tail -n 1 | tr -cd , | wc -c)
  number=$((commas + 1)) first=1
  if missing=$(costbench results list "$archive" "${params[@]}" | tail -n 1); then
    [[ "$missing," == *" experiments/$experiment,"* ]] || first=$number
  fi
  for ((seeds = first; seeds <= ${SEEDS:-number}; seeds++)); do
    costbench train --experiment "$experiment" --seeds "$seeds" "${params[@]}"
    costbench evaluate --experiment "$experiment" --seeds "$seeds" "${params[@]}"
    costbench results pack --compact --experiment "$experiment" "$archive" "${params[@]}"
  done
done
