#!/usr/bin/env bash
# A real Slurm cluster on this machine, for tests: munge, MariaDB, slurmdbd, slurmctld and some slurmd with fake GPUs, all
# below one folder and on 127.0.0.1 alone. It must be root. Packages are installed if they are missing.
#
#   scripts/slurm-lab.sh install           only the packages
#   scripts/slurm-lab.sh up                brings up whatever is not up; again, it does nothing
#   scripts/slurm-lab.sh up --for PID      the same, and everything goes by itself some seconds after that process is gone
#   scripts/slurm-lab.sh recount           starts the controller anew: it counts again who has which GPUs and CPUs
#   scripts/slurm-lab.sh down [--purge]    stops it; with --purge nothing of it stays
#   scripts/slurm-lab.sh env               what a shell needs to use it:  eval "$(scripts/slurm-lab.sh env)"
#
# Users: alice and bob (account research), carol and dave (account product), svc (Administrator). As one of them:
#   lab_as alice sbatch --gpus=3 --wrap 'echo $CUDA_VISIBLE_DEVICES'
#
# BURSAR_SLURM_LAB     its folder; by default one in memory
# BURSAR_SLURM_NODES   how many nodes; 4
# BURSAR_SLURM_GPUS    GPUs of each; 8
#
# How it is done, and why so, stands in scripts/slurm/README.md.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
. scripts/slurm/lab.sh

case "${1:-}" in
install) lab_install ;;
up)
    lab_install
    if [ "${2:-}" = --for ]; then lab_lock lab_up_for "${3:?slurm-lab.sh: up --for PID}"; else lab_lock lab_up; fi
    ;;
recount) lab_lock lab_recount ;;
down) lab_lock lab_down "${2:-}" ;;
keep) lab_keeper ;;
env) lab_env ;;
*) die "slurm-lab.sh: install, up [--for PID], recount, down [--purge] or env" ;;
esac
