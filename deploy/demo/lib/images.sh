# shellcheck shell=bash
# The base image, the build context with the host's settings in it, and the three images.

image_names=("$project-head" "$project-node" "$project-portal")
images_hash=$state_dir/images-$release.hash
# Tried with these; Debian carries Apptainer in unstable only, where yesterday's version is gone tomorrow.
tested_apptainer="1.4.0 1.4.99"
tested_slurm="24.11.0 24.11.99"
[[ $release == trixie ]] || tested_slurm="26.05.0 26.05.99"

base_image_ready() {
    dk image inspect "$base_image" >/dev/null 2>&1 && return 0
    if timeout 60 "${docker_command[@]}" pull "$base_image"; then
        echo "$base_image" >>"$state_dir/base-image"
        return 0
    fi
    say "      $base_image cannot be pulled: making it with debootstrap"
    make_base_image
    echo "$base_image" >>"$state_dir/base-image"
}

make_base_image() {
    local root=$state_dir/base-root
    if ! have debootstrap || [[ ! -e /usr/share/keyrings/debian-archive-keyring.gpg ]]; then
        as_root apt-get update
        apt_install debootstrap debian-archive-keyring
    fi
    as_root rm -rf "$root"
    as_root debootstrap --variant=minbase --keyring=/usr/share/keyrings/debian-archive-keyring.gpg \
        "$release" "$root" http://deb.debian.org/debian
    as_root tar -C "$root" --numeric-owner --exclude=./dev --exclude='./var/cache/apt/*' -c . |
        dk import --change 'CMD ["bash"]' - "$base_image"
    as_root rm -rf "$root"
}

# Whatever lets this host reach the outside is handed to the builds; nothing is there on an ordinary machine but the CA bundle.
make_context() {
    local context=$state_dir/context file
    rm -rf "$context"
    mkdir -p "$context"
    cp -R "$demo_dir/image/." "$context/"
    mkdir -p "$context/host/apt"
    for file in /etc/ssl/certs/ca-certificates.crt /etc/pip.conf /etc/npmrc; do
        [[ ! -r $file ]] || cp "$file" "$context/host/"
    done
    # A proxy on the host's own loopback is of no use in a container.
    apt-config dump 2>/dev/null |
        grep -E '^Acquire::(Check-Valid-Until|Check-Date|https?::(Proxy|Verify|CAInfo))' |
        grep -vE 'localhost|127\.0\.0\.' >"$context/host/apt/90host.conf" || true
    chmod -R u+rwX,go+rX "$context"
}

images_ready() {
    local hash
    make_context
    write_compose_env
    hash=$(hash_of "$state_dir/context")
    if [[ $(cat "$images_hash" 2>/dev/null) == "$hash" ]] && dk image inspect "${image_names[@]}" >/dev/null 2>&1; then
        return 0
    fi
    compose build head c1 portal
    check_versions
    echo "$hash" >"$images_hash"
}

check_versions() {
    local version
    version=$(dk run --rm --entrypoint apptainer "$project-node" version)
    check_version Apptainer "${version%%-*}" "$tested_apptainer" "Debian's unstable carries no other"
    # shellcheck disable=SC2016  # dpkg-query expands it
    version=$(dk run --rm --entrypoint dpkg-query "$project-node" -W -f '${Version}' slurm-client)
    check_version SLURM "${version%%-*}" "$tested_slurm" "it is the base image's"
}

check_version() { # check_version NAME VERSION "FROM TO" WHY
    local from to
    read -r from to <<<"$3"
    if [[ $(printf '%s\n' "$from" "$2" "$to" | sort -V | sed -n 2p) != "$2" ]]; then
        warn "$1 is version $2; tried with $from to $to ($4). Going on; suspect it first if containers misbehave."
    fi
}
