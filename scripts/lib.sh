# Shared by the scripts beside it. Source it; it changes to the repository's root.
# shellcheck shell=bash

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
export CARGO_TERM_COLOR="${CARGO_TERM_COLOR:-auto}"

# cargo installs its tools where a fresh shell may not look.
export PATH="$PATH:${CARGO_HOME:-$HOME/.cargo}/bin"

section() { printf '\n== %s  (after %d s)\n' "$*" "$SECONDS"; }

note() { printf '   %s\n' "$*"; }

die() {
    printf '\nFAILED: %s\n' "$*" >&2
    exit 1
}

has() { command -v "$1" >/dev/null 2>&1; }

# Runs a command, says what it was and stops everything if it fails.
run() {
    printf '$ %s\n' "$*"
    "$@" </dev/null || die "$*"
}

# Installs packages of the system by name.
apt_install() {
    has apt-get || return 1
    local as_root=()
    if [ "$(id -u)" -ne 0 ]; then
        has sudo || return 1
        as_root=(sudo -n)
    fi
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get update -qq </dev/null \
        && "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
            apt-get install -y -qq --no-install-recommends "$@" </dev/null
}

# A C compiler: one dependency (zstd) is written in C.
need_c_compiler() {
    if has cc; then return; fi
    note "no C compiler: installing gcc"
    apt_install gcc libc6-dev || die "a C compiler is needed: install gcc (or clang) and try again"
}

# cargo of the release that rust-toolchain.toml names.
need_rust() {
    if ! has cargo; then
        note "no cargo: installing rustup"
        apt_install rustup ca-certificates || die "cargo is needed: install rustup and try again"
    fi
    if ! cargo --version >/dev/null 2>&1; then
        note "installing the toolchain that rust-toolchain.toml names"
        rustup toolchain install </dev/null || die "rustup could not install the toolchain"
    fi
    note "$(cargo --version)"
}

# cargo-deny checks licences, sources and known faults of the dependencies.
need_cargo_deny() {
    if ! has cargo-deny; then
        note "no cargo-deny: building it once, which takes some minutes"
        # Unoptimised: it builds in half the time and still checks in a second.
        run cargo install cargo-deny --version '^0.20' --locked --debug --quiet
    fi
    note "$(cargo-deny --version)"
}

# valgrind counts instructions.
need_valgrind() {
    if ! has valgrind; then
        note "no valgrind: installing it"
        apt_install valgrind || die "valgrind is needed to count instructions: install it and try again"
    fi
    note "$(valgrind --version)"
}

# cargo-fuzz, and the nightly compiler that it needs, and a C++ compiler for the library that it links.
need_cargo_fuzz() {
    if ! has c++; then
        note "no C++ compiler: installing g++"
        apt_install g++ || die "a C++ compiler is needed to fuzz: install g++ (or clang++) and try again"
    fi
    if ! cargo +nightly --version >/dev/null 2>&1; then
        note "no nightly compiler: installing it"
        rustup toolchain install nightly --profile minimal </dev/null \
            || die "a nightly compiler is needed to fuzz: rustup toolchain install nightly"
    fi
    if ! has cargo-fuzz; then
        note "no cargo-fuzz: building it once"
        run cargo install cargo-fuzz --version '^0.13' --locked --debug --quiet
    fi
    note "$(cargo +nightly --version)"
}
