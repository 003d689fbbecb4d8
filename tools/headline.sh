#!/usr/bin/env bash
# Runs the profile `headline` experiment by experiment, and packs what is finished after each: a rerun goes on.
set -euo pipefail
params=(--params profiles/headline/params.yaml)
for stage in generate split features; do costbench "$stage" "${params[@]}"; done
for experiment in {curves,headline,trees}-{tile,fusion} expert-{tile,fusion} {orders,ablations}-{tile,fusion} orders-tpugraphs tpugraphs-tile estimates-{tile,fusion}; do
  costbench train --experiment "$experiment" "${params[@]}"
  costbench evaluate --experiment "$experiment" "${params[@]}"
  costbench results pack --compact data/results/headline "${params[@]}"
done
