# shellcheck shell=bash
# What every benchmark needs: packages, a build, a quiet word about what is done. Sourced by the scripts beside it.
set -euo pipefail
bench_dir=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
repo_dir=$(cd "$bench_dir/.." && pwd)
cd "$repo_dir"
PATH=$PATH:/usr/sbin:/sbin:$HOME/.cargo/bin
target=${CARGO_TARGET_DIR:-$repo_dir/target}
# shellcheck disable=SC2034  # for the scripts that source this
program=$target/release/eirene-bench

say() { printf '==> %s\n' "$*"; }

# packages COMMAND=PACKAGE …: installs the Debian packages whose command is missing, after saying so.
packages() {
    local wanted=() pair sudo=()
    for pair in "$@"; do
        command -v "${pair%%=*}" >/dev/null 2>&1 || wanted+=("${pair#*=}")
    done
    [[ ${#wanted[@]} -gt 0 ]] || return 0
    ((EUID == 0)) || sudo=(sudo)
    say "installing with apt: ${wanted[*]}"
    "${sudo[@]}" apt-get update -qq
    "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${wanted[@]}" >/dev/null
}

build_bench() {
    say "building eirene-bench"
    cargo build --release --locked --quiet --target-dir "$target" -p eirene-bench
}

# The programs under test, built as `make demo` builds them: glibc is linked into the agent.
build_ours() {
    say "building eirened, eirene-launcher, eirene and eirene-agent"
    cargo build --release --locked --quiet --target-dir "$target" --bin eirened --bin eirene-launcher --bin eirene
    RUSTFLAGS="-C target-feature=+crt-static" cargo build --release --locked --quiet \
        --target-dir "$target/static" --target x86_64-unknown-linux-gnu --bin eirene-agent
}
