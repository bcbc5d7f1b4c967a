#!/usr/bin/env bash
# Installs what building and testing need, if it is not there. demo.sh and test.sh call it.
#
#   scripts/setup.sh          what building needs
#   scripts/setup.sh --tests  what the tests need, too
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

section "set-up"
need_c_compiler
need_rust
case "${1:-}" in
'') ;;
--tests)
    for component in rustfmt clippy; do
        cargo "${component/rust/}" --version >/dev/null 2>&1 \
            || run rustup component add "$component"
    done
    need_cargo_deny
    # Where no instructions are counted (counts.sh says where), none is needed.
    if [ "$(uname -sm)" = "Linux x86_64" ]; then need_valgrind; fi
    # A real Slurm, on this machine. It can be done without, but not silently.
    if [ "${BURSAR_NO_SLURM:-}" = 1 ]; then
        note "BURSAR_NO_SLURM=1: nothing will be tried on a real Slurm"
    else
        run scripts/slurm-lab.sh install
    fi
    ;;
*) die "setup.sh: unknown argument $1" ;;
esac
