# shellcheck shell=bash
# Eirene's own binaries, built with cargo and put into var/bin by rename, so that running programs keep their file.

changed_binaries=()

target_dir=${CARGO_TARGET_DIR:-$repo_dir/target}
profile=${EIRENE_DEMO_PROFILE:-demo}
# start_compiler: cargo goes on by itself while images are built, which mostly wait for the network; build_binaries waits for it.
start_compiler() {
    # A process group of its own, so that it ends whole where a step fails.
    set -m
    (
        cd "$repo_dir" || exit
        if [[ $test_binaries == 1 ]]; then
            # With what the tests need of each library, or nearly all libraries would be compiled again for them.
            exec cargo test --no-run --workspace --locked --target-dir "$target_dir"
        fi
        exec cargo build --profile "$profile" --locked --target-dir "$target_dir" \
            --bin eirened --bin eirene-launcher --bin eirene-files --bin eirene-look --bin eirene-gpu --bin eirene --bin eirene-agent
    ) >"$state_dir/cargo.log" 2>&1 </dev/null 3>&- &
    compiler=$!
    set +m
}

build_binaries() {
    local name built=$profile status=0
    wait "$compiler" || status=$?
    compiler=
    cat "$state_dir/cargo.log"
    ((status == 0)) || return "$status"
    mkdir -p "$bin_dir"
    [[ $test_binaries == 0 ]] || built=debug
    for name in eirened eirene-launcher eirene-files eirene-look eirene-gpu eirene eirene-agent; do
        install_binary "$target_dir/$built/$name"
    done
}

install_binary() {
    local name=${1##*/}
    cmp -s "$1" "$bin_dir/$name" && return 0
    install -m 0755 "$1" "$bin_dir/.$name.new"
    mv "$bin_dir/.$name.new" "$bin_dir/$name"
    changed_binaries+=("$name")
}
