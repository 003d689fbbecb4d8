#!/usr/bin/env bash
# Tunes, trains and scores all architectures and baselines of the suite, task by task, and renders the leaderboard: a rerun
# goes on. Arguments are seeds of fresh test sets, which take the hyper-parameters chosen before.
# Usage: suite.sh [SEED...]
set -euo pipefail
enter() { # folders of data and of work, options of the data, tasks
  local folders=(--data "$1" --work "$2") options=$3 tasks=("${@:4}")
  # At once: data of one task alone would replace the other's intermediate results.
  # shellcheck disable=SC2086 # options are words
  costbench suite data "${tasks[@]/#/--task=}" --out "$1" --work "$2" $options
  for task in "${tasks[@]}"; do costbench suite architectures --task "$task" "${folders[@]}"; done
}
if (($# == 0)); then enter suite out/suite '' tile fusion fusion_xla_cpu; fi
for seed in "$@"; do enter "suite-fresh$seed" "out/suite-fresh$seed" "--fresh $seed" tile fusion; done
costbench suite leaderboard
