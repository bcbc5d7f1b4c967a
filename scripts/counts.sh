#!/usr/bin/env bash
# Counts instructions and compares them with crates/sim/benches/counts/limits.txt. test.sh calls it.
#
#   scripts/counts.sh            fails if a limit is exceeded
#   scripts/counts.sh --record   writes what was counted into limits.txt
#   scripts/counts.sh lab        looks only at rows with that in their name
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

if [ "$(uname -sm)" != "Linux x86_64" ]; then
    note "not counted: the limits were recorded on x86_64 Linux"
    exit 0
fi
need_valgrind
# The tests' build of everything but what is counted serves here, too: hence their profile, and the whole workspace.
run cargo bench --workspace --locked --profile dev --config crates/sim/benches/counts/profile.toml \
    --bench counts -- "$@"
