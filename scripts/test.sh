#!/usr/bin/env bash
# Sets everything up and runs every check of this repository. CI runs this and nothing else.
# It stops at the first check that fails; the last line says how it went.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

scripts/setup.sh --tests
begun=$SECONDS

section "format"
run cargo fmt --all --check

section "lints"
run cargo clippy --workspace --all-targets --locked -- -D warnings

section "fuzz targets"
# As far as this compiler goes: without linking the fuzzer. Their bodies are replayed among the tests.
fuzz=(--manifest-path fuzz/Cargo.toml)
run cargo fmt "${fuzz[@]}" --check
run cargo clippy "${fuzz[@]}" --target-dir "${CARGO_TARGET_DIR:-target}" --locked --no-default-features \
    --bins -- -D warnings

section "dependencies"
# Known faults are looked up in a database that is fetched; the other checks need no network.
if timeout 180 cargo deny fetch db </dev/null >/dev/null 2>&1; then
    run cargo deny --locked check
else
    note "the database of known faults cannot be reached: checking all but that"
    run cargo deny --locked check bans licenses sources
fi

section "documentation"
RUSTDOCFLAGS="-D warnings" run cargo doc --workspace --no-deps --locked --quiet

section "tests"
if cargo nextest --version >/dev/null 2>&1; then
    # Tests on a real Slurm mostly wait, two at a time: what computes goes on beside them.
    export NEXTEST_TEST_THREADS="${NEXTEST_TEST_THREADS:-$(($(nproc) + 2))}"
    run cargo nextest run --workspace --locked --no-fail-fast
else
    run cargo test --workspace --locked --lib --bins --tests --examples --no-fail-fast --quiet
fi

section "traces, which are built on demand only"
run cargo clippy --package bursar --package bursar-server --features bursar/otel --all-targets --locked -- -D warnings
run cargo test --package bursar-server --features otel --test otel --locked --quiet

section "the API, fuzzed"
run scripts/schemathesis.sh 25

section "instruction counts"
run scripts/counts.sh

section "examples in the documentation"
run cargo test --workspace --locked --doc --quiet

if [ -x scripts/acceptance.sh ]; then
    section "acceptance"
    run scripts/acceptance.sh
fi

printf '\nPASSED: all checks, in %d min %d s\n' $(((SECONDS - begun) / 60)) $(((SECONDS - begun) % 60))
