#!/usr/bin/env bash
# Figures of Bursar and of plain Slurm on a cluster of many nodes, all on this machine; they are printed, and stand in
# docs/benchmarks.md. It must be root.
#
#   scripts/slurm-scale.sh [NODES]     100 nodes of eight fake GPUs unless it says otherwise; about ten minutes
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

export BURSAR_SLURM_NODES="${1:-100}"
export BURSAR_SLURM_LAB="${BURSAR_SLURM_LAB:-/dev/shm/bursar-slurm-scale-$BURSAR_SLURM_NODES}"
exec cargo test -q -p bursar --test slurm -- --ignored --nocapture what_many_nodes
