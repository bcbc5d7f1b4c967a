#!/usr/bin/env bash
# Sets everything up, builds Bursar and plays a month of a research lab under two policies.
# Arguments go to `bursar simulate`: scripts/demo.sh --set seed=2
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

scripts/setup.sh

section "build"
run cargo build --release --locked --package bursar
bursar="${CARGO_TARGET_DIR:-target}/release/bursar"

section "a month of scenarios/lab.yaml under 'budget' and under 'levels' (about half a minute)"
mkdir -p out
run "$bursar" simulate scenarios/lab.yaml --policy budget --policy levels --html out/lab.html "$@"

section "done"
if [ -f out/lab.html ]; then note "pictures of both runs: out/lab.html"; fi
note "what else it can do:   $bursar --help"
