# shellcheck shell=bash
# What every benchmark needs: a build, a quiet word about what is done. Sourced by the scripts beside it.
set -euo pipefail
bench_dir=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
repo_dir=$(cd "$bench_dir/.." && pwd)
cd "$repo_dir"
# shellcheck source=../deploy/host.sh
source deploy/host.sh
target=${CARGO_TARGET_DIR:-$repo_dir/target}
# shellcheck disable=SC2034  # for the scripts that source this
program=$target/release/eirene-bench

say() { printf '==> %s\n' "$*"; }

build_bench() {
    say "building eirene-bench"
    cargo build --release --locked --quiet --target-dir "$target" -p eirene-bench
}

# Our programs as `make demo` builds them.
build_programs() {
    local name bins=()
    for name in "$@"; do bins+=(--bin "$name"); done
    cargo build --release --locked --quiet --target-dir "$target" "${bins[@]}"
}

build_ours() {
    say "building eirened, eirene-launcher, eirene and eirene-agent"
    build_programs eirened eirene-launcher eirene eirene-agent
}
