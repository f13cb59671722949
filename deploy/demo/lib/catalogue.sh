# shellcheck shell=bash
# The portal's catalogue: recipe -> Docker image -> SIF named by its sha256 -> an entry. What is built from the same files is built once.

recipes_dir=$repo_dir/containers/images

# known_of NAME: what the image was built from, and its file, in the caller's `known` and `sif`; nothing where it was never built, or the note of it
# was cut off.
known_of() {
    if [[ ! -s $images_dir/$1.built ]] || ! read -r known sif <"$images_dir/$1.built"; then
        known='' sif=''
    fi
}

# make_image RECIPE DESCRIPTION: builds containers/images/RECIPE unless that was done before, and puts it into the catalogue by that name.
make_image() {
    local name=$1 description=$2 digest known sif
    mkdir -p "$images_dir"
    digest=$(recipe_digest "$name")
    known_of "$name"
    if [[ $known != "$digest" || ! -s $images_dir/${sif:-none} ]]; then
        ! needs_wheel "$name" || "$repo_dir/training/wheel"
        "$recipes_dir/assemble" "$name" "$state_dir/recipes/$name"
        sif=$(build_sif "$name")
        [[ $sif =~ ^[0-9a-f]{64}\.sif$ && -s $images_dir/$sif ]] || {
            echo "eirened image build printed no <sha256>.sif in $images_dir: $sif" >&2
            return 1
        }
        printf '%s %s\n' "$digest" "$sif" >"$images_dir/$name.built"
    fi
    add_image "$name" "$description" "$sif"
}

add_image() { # add_image NAME DESCRIPTION SIF
    local name=$1 description=$2 sif=$3
    if [[ $(on_portal cat "/var/lib/eirene/.demo-$name" 2>/dev/null || true) == "$sif" ]]; then
        return 0
    fi
    dk cp "$images_dir/$sif" "portal:/srv/eirene/images/.$sif.new"
    # shellcheck disable=SC2016  # that shell expands them
    dk exec portal sh -c 'chown root:root "$1" && chmod 0644 "$1" && mv "$1" "$2"' sh \
        "/srv/eirene/images/.$sif.new" "/srv/eirene/images/$sif"
    on_portal eirened image add "$name" --sif "/srv/eirene/images/$sif" --description "$description" --config "$portal_config"
    echo "$sif" | on_portal tee "/var/lib/eirene/.demo-$name" >/dev/null
}

build_sif() { # build_sif NAME: prints the file's name
    local command=("$bin_dir/eirened") pip
    pip=$(pip_configuration)
    [[ ${docker_command[0]} != sudo ]] || command=("${as_root_command[@]}" "${command[@]}")
    # `env` and not an assignment, which sudo would lose.
    [[ -z $pip ]] || command=("${command[@]::${#command[@]}-1}" env "PIP_CONFIG_FILE=$pip" "$bin_dir/eirened")
    # The last line it prints is the path.
    "${command[@]}" image build "$state_dir/recipes/$1" --name "$1" --builder-image "$project-node" --output "$images_dir" |
        tail -n 1 | sed 's#.*/##'
}

# What a recipe takes from elsewhere, as `assemble` reads it.
needs_of() { sed '/^#/d; /^$/d' "$recipes_dir/$1/needs" 2>/dev/null || true; }

needs_wheel() { needs_of "$1" | grep '^dist/eirene_train-' >/dev/null; }

# One hash over all that a recipe is built from. For the wheel stand its sources, so that it need not be built to see that nothing changed.
recipe_digest() {
    local need
    {
        hash_of "$recipes_dir/$1"
        while read -r need; do
            case $need in
            dist/eirene_train-*) wheel_sources_hash ;;
            *) hash_of "$repo_dir/$need" ;;
            esac
        done < <(needs_of "$1")
    } | sha256sum | cut -c1-32
}

wheel_sources_hash() {
    (
        cd "$repo_dir" || exit
        find Cargo.toml Cargo.lock hostlist steps training -type d \( -name tests -o -name __pycache__ -o -name '.*' \) -prune -o -type f -print0 |
            LC_ALL=C sort -z | xargs -0r sha256sum
    ) | sha256sum
}
