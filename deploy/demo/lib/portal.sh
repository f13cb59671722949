# shellcheck shell=bash
# The portal's part: its people, its first image, var/demo.json.

recipe_dir=$repo_dir/containers/images/jupyter
portal_config=/etc/eirene/eirened.toml

on_portal() { dk exec -i -u eirene portal "$@"; }

restart_changed() {
    local name
    for name in eirene-launcher eirened; do
        if [[ " ${changed_binaries[*]} " == *" $name "* ]]; then
            dk exec portal demo-ctl "${name#eirene-}" restart
        fi
    done
}

healthy() { curl -sf -m 5 -o /dev/null -H "Host: eirene.localhost:$port" "http://127.0.0.1:$port/healthz"; }

wait_portal() { wait_until 60 "the portal answers at /healthz (docker logs portal)" healthy; }

new_password() { head -c 512 /dev/urandom | LC_ALL=C tr -dc 'a-hj-km-np-z2-9' | head -c 20; }

password_of() { # the password in demo.json, which has one line a person; a new one if there is none
    local known
    known=$(sed -n "s/.*{\"username\": \"$1\", \"password\": \"\([^\"]*\)\".*/\1/p" "$demo_json" 2>/dev/null || true)
    echo "${known:-$(new_password)}"
}

write_demo_json() {
    local admin ada grace
    admin=$(password_of admin)
    ada=$(password_of ada)
    grace=$(password_of grace)
    (
        umask 077
        cat >"$demo_json.new" <<JSON
{
  "portal_url": "http://eirene.localhost:$port",
  "apps_domain": "apps.eirene.localhost:$port",
  "admin": {"username": "admin", "password": "$admin"},
  "users": {
    "ada": {"username": "ada", "password": "$ada"},
    "grace": {"username": "grace", "password": "$grace"}
  }
}
JSON
    )
    mv "$demo_json.new" "$demo_json"
}

# Once for a database: people may change their passwords afterwards.
make_people() {
    local hash name
    write_demo_json
    hash=$(grep username "$demo_json" | sha256sum | cut -c1-32)
    if [[ $(on_portal cat /var/lib/eirene/.demo-people 2>/dev/null || true) == "$hash" ]]; then
        return 0
    fi
    password_of admin | on_portal eirened create-admin --config "$portal_config" --username admin --password-stdin --reset
    for name in ada grace; do
        password_of "$name" | on_portal eirened create-user --config "$portal_config" --username "$name" --password-stdin --reset
    done
    echo "$hash" | on_portal tee /var/lib/eirene/.demo-people >/dev/null
}

# The catalogue's first image: recipe -> Docker image -> SIF named by its sha256, all in `eirened image build`.
make_jupyter() {
    local recipe sif known
    if [[ ! -d $recipe_dir ]]; then
        warn "no recipe in $recipe_dir yet: the catalogue stays empty"
        return 0
    fi
    mkdir -p "$images_dir"
    recipe=$(hash_of "$recipe_dir")
    read -r known sif <"$images_dir/jupyter.built" 2>/dev/null || true
    if [[ ${known:-} != "$recipe" || ! -s $images_dir/${sif:-none} ]]; then
        sif=$(build_sif)
        [[ $sif =~ ^[0-9a-f]{64}\.sif$ && -s $images_dir/$sif ]] || {
            echo "eirened image build printed no <sha256>.sif in $images_dir: $sif" >&2
            return 1
        }
        printf '%s %s\n' "$recipe" "$sif" >"$images_dir/jupyter.built"
    fi
    if [[ $(on_portal cat /var/lib/eirene/.demo-jupyter 2>/dev/null || true) == "$sif" ]]; then
        return 0
    fi
    dk cp "$images_dir/$sif" "portal:/srv/eirene/images/.$sif.new"
    # shellcheck disable=SC2016  # that shell expands them
    dk exec portal sh -c 'chown root:root "$1" && chmod 0644 "$1" && mv "$1" "$2"' sh \
        "/srv/eirene/images/.$sif.new" "/srv/eirene/images/$sif"
    on_portal eirened image add jupyter --sif "/srv/eirene/images/$sif" \
        --description "JupyterLab 4 with Python 3.13, NumPy and Matplotlib" --config "$portal_config"
    echo "$sif" | on_portal tee /var/lib/eirene/.demo-jupyter >/dev/null
}

build_sif() {
    local command=("$bin_dir/eirened")
    [[ ${docker_command[0]} != sudo ]] || command=(sudo "${command[@]}")
    # The last line it prints is the path.
    "${command[@]}" image build "$recipe_dir" --name jupyter --builder-image eirene-demo-node --output "$images_dir" |
        tail -n 1 | sed 's#.*/##'
}

print_people() {
    say ""
    say "  Eirene's portal      http://eirene.localhost:$port   (Chromium, Firefox and curl know *.localhost)"
    local name
    for name in admin ada grace; do
        say "  $(printf '%-20s password %s' "$name" "$(password_of "$name")")"
    done
    say "  all this, for programs: $demo_json"
}
