# shellcheck shell=bash
# Eirene's own binaries, built with cargo and put into var/bin by rename, so that running programs keep their file.

changed_binaries=()

build_binaries() {
    local target=${CARGO_TARGET_DIR:-$repo_dir/target} name built=release
    mkdir -p "$bin_dir"
    (
        cd "$repo_dir" || exit
        if [[ $test_binaries == 1 ]]; then
            # With what the tests need of each library, or nearly all libraries would be compiled again for them.
            cargo test --no-run --workspace --locked --target-dir "$target"
        else
            cargo build --release --locked --target-dir "$target" \
                --bin eirened --bin eirene-launcher --bin eirene-files --bin eirene-look --bin eirene-gpu --bin eirene --bin eirene-agent
        fi
    )
    [[ $test_binaries == 0 ]] || built=debug
    for name in eirened eirene-launcher eirene-files eirene-look eirene-gpu eirene eirene-agent; do
        install_binary "$target/$built/$name"
    done
}

install_binary() {
    local name=${1##*/}
    cmp -s "$1" "$bin_dir/$name" && return 0
    install -m 0755 "$1" "$bin_dir/.$name.new"
    mv "$bin_dir/.$name.new" "$bin_dir/$name"
    changed_binaries+=("$name")
}
