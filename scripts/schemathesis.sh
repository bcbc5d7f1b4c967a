#!/usr/bin/env bash
# Fuzzes the API from its own description, with schemathesis, against a throw-away site on the loopback: no answer
# may be a fault of the server, and every answer must be as the description says. test.sh calls it.
#
#   scripts/schemathesis.sh [SECONDS [SEED]]     40 seconds by default
#
# schemathesis is installed beside the build the first time. Where it cannot be had, that is said and nothing fails.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

seconds="${1:-40}"
seed="${2:-1}"
[[ "$seconds" =~ ^[1-9][0-9]*$ && "$seed" =~ ^[0-9]+$ ]] || die "schemathesis.sh: SECONDS and SEED are numbers"
target="${CARGO_TARGET_DIR:-target}"
venv="$target/schemathesis"

section "schemathesis"
if ! [ -x "$venv/bin/schemathesis" ]; then
    if ! has python3; then apt_install python3 python3-venv || true; fi
    if ! { python3 -m venv "$venv" && "$venv/bin/pip" install --quiet 'schemathesis>=4.32,<5'; } </dev/null; then
        rm -rf "$venv"
        note "NOT RUN: schemathesis cannot be had here (python3 with venv, and a package index, are needed)"
        exit 0
    fi
fi
note "$("$venv/bin/schemathesis" --version)"

run cargo build --locked --quiet --package bursar
work="$(mktemp -d)"
daemon=
tidy() {
    if [ -n "$daemon" ]; then
        kill "$daemon" 2>/dev/null || true
        wait "$daemon" 2>/dev/null || true
    fi
    rm -rf "$work"
}
trap tidy EXIT

cat >"$work/budgets.yaml" <<'YAML'
program-a: {share: 2, children: {a1: {share: 1}, a2: {share: 1}}}
program-b: {share: 1}
YAML
# No port is named: the system gives one that is free. Commands that are found by name are found nowhere.
PATH=/nonexistent "$(realpath "$target/debug/bursar")" up --data "$work/data" --listen 127.0.0.1:0 --allow-root-work \
    --virtual-gpus 8 --owner boss --budgets "$work/budgets.yaml" >"$work/said" 2>"$work/log" </dev/null &
daemon=$!
for _ in $(seq 100); do
    if grep -q BURSAR_TOKEN= "$work/said"; then break; fi
    kill -0 "$daemon" 2>/dev/null || { cat "$work/log" >&2; die "the site does not come up"; }
    sleep 0.1
done
url="$(sed -n 's/^bursar is up at \(.*\)$/\1/p' "$work/said")"
token="$(sed -n 's/^ *export BURSAR_TOKEN=\(.*\)$/\1/p' "$work/said")"
[ -n "$url" ] && [ -n "$token" ] || die "the site does not say where it is"

# The host is drained, and never taken back: so nothing that is fuzzed is ever started, and work waits to be found.
export BURSAR_URL="$url" BURSAR_TOKEN="$token"
host="$(sed -n 's/^  host \([^:]*\):.*$/\1/p' "$work/said")"
run "$target/debug/bursar" host drain "$host" --reason "fuzzing"
for budget in program-a/a1 program-b; do
    run "$target/debug/bursar" run --gpus 4 --min-runtime 10m --budget "$budget" -- none
done

# One worker: Python's compiler, which the fuzzer uses, fails now and then in two threads at once.
# Streams never end, so a fuzzer cannot read them; they have tests of their own. The fuzzer's own token shall not be
# revoked, nor the host be taken back.
status=0
root="$PWD"
schemathesis="$(realpath "$venv")/bin/schemathesis"
# What it remembers of a run goes with the run: each begins alike.
cd "$work"
timeout $((seconds + 60)) "$schemathesis" \
    --config-file "$root/scripts/schemathesis.toml" run "$root/docs/openapi.json" --url "$url" \
    --header "Authorization: Bearer $token" --seed "$seed" --max-time "$seconds" --workers 1 \
    --exclude-path /v1/events --exclude-path '/v1/tokens/{name}/revoke' \
    --exclude-path '/v1/hosts/{name}/undrain' --request-timeout 20 \
    --no-color </dev/null >"$work/report" 2>&1 || status=$?
cd "$root"
kill -0 "$daemon" 2>/dev/null || { tail -20 "$work/log" >&2; die "the daemon did not survive"; }
if grep -E "panicked|fault of Bursar's" "$work/log" >&2; then
    die "the daemon panicked; again: scripts/schemathesis.sh $seconds $seed"
fi
if [ "$status" -ne 0 ]; then
    cut -c 1-400 "$work/report" | head -n 300
    die "schemathesis found something; again: scripts/schemathesis.sh $seconds $seed"
fi
tail -n 12 "$work/report"
printf '\nPASSED: nothing found in %s seconds\n' "$seconds"
