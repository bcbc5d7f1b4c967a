#!/usr/bin/env bash
# Sets everything up, builds Bursar and shows a live site: a made-up lab, small real processes, told line by line.
# Ctrl-C takes everything along. Arguments go to `bursar up`: scripts/live.sh --listen 127.0.0.1:8080
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

scripts/setup.sh

section "build"
run cargo build --release --locked --package bursar
bursar="${CARGO_TARGET_DIR:-target}/release/bursar"

section "a live site"
note "the commands below:   export PATH=\"$(cd "$(dirname "$bursar")" && pwd):\$PATH\""
exec "$bursar" up --demo "$@"
