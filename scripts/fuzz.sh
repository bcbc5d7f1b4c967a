#!/usr/bin/env bash
# Fuzzes everything that reads what others wrote, each target for so many seconds.
#
#   scripts/fuzz.sh [SECONDS [TARGET]...]     30 seconds and all targets of fuzz/ by default
#
# What was found to lead somewhere new is kept in fuzz/corpus, what failed in fuzz/artifacts; git ignores both.
# It needs a nightly compiler, so it is no part of test.sh, where the same bodies are replayed over fuzz/seeds.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

seconds="${1:-30}"
[[ "$seconds" =~ ^[1-9][0-9]*$ ]] || die "fuzz.sh: '$seconds' is not a number of seconds"
shift || true
targets=("$@")
if [ ${#targets[@]} -eq 0 ]; then
    for file in fuzz/targets/*.rs; do targets+=("$(basename "$file" .rs)"); done
fi

section "set-up"
need_c_compiler
need_rust
need_cargo_fuzz

for target in "${targets[@]}"; do
    [ -f "fuzz/targets/$target.rs" ] || die "fuzz.sh: there is no target $target"
    section "$target, for $seconds seconds"
    mkdir -p "fuzz/corpus/$target"
    # An input takes at most 10 seconds and 1 GiB. Seeds are read, the corpus is written.
    if ! cargo +nightly fuzz run --fuzz-dir fuzz "$target" "fuzz/corpus/$target" "fuzz/seeds/$target" -- \
        -max_total_time="$seconds" -max_len=8192 -timeout=10 -rss_limit_mb=1024 \
        -dict="fuzz/dictionaries/$target" -print_final_stats=1 -verbosity=0 </dev/null; then
        die "$target: the input is in fuzz/artifacts/$target; run it again with
        cargo +nightly fuzz run $target FILE
        and, when it is mended, keep it as a seed in fuzz/seeds/$target"
    fi
done

printf '\nPASSED: nothing found in %s seconds for each of: %s\n' "$seconds" "${targets[*]}"
