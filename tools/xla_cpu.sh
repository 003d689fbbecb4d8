#!/usr/bin/env bash
# Runs a profile of a real machine experiment by experiment, and packs what is finished after each: a rerun goes on.
# Usage: xla_cpu.sh [PROFILE [ARCHIVE]]
set -euo pipefail
params=(--params "profiles/${1:-xla_cpu}/params.yaml")
archive=${2:-data/results/xla_cpu}
for stage in generate split features; do costbench "$stage" "${params[@]}"; done
for experiment in real-{fusion,trees,curves} simulated-fusion transfer-fusion real-ablations; do
  costbench train --experiment "$experiment" "${params[@]}"
  costbench evaluate --experiment "$experiment" "${params[@]}"
  costbench results pack --compact "$archive" "${params[@]}"
done
