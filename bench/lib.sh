# shellcheck shell=bash
# What every benchmark needs: a build, a quiet word about what is done. Sourced by the scripts beside it.
set -euo pipefail
bench_dir=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
repo_dir=$(cd "$bench_dir/.." && pwd)
cd "$repo_dir"
PATH=$PATH:/usr/sbin:/sbin:$HOME/.cargo/bin
target=${CARGO_TARGET_DIR:-$repo_dir/target}
# shellcheck disable=SC2034  # for the scripts that source this
program=$target/release/eirene-bench

say() { printf '==> %s\n' "$*"; }

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
