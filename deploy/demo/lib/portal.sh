# shellcheck shell=bash
# The portal's part: its people, var/demo.json.

portal_config=/etc/eirene/eirened.toml

on_portal() { dk exec -i -u eirene portal "$@"; }

restart_changed() {
    local changed=" ${changed_binaries[*]} "
    # The launcher takes its own copies of eirene-files and eirene-look when it starts.
    if [[ $changed == *" eirene-launcher "* || $changed == *" eirene-files "* || $changed == *" eirene-look "* ]]; then
        dk exec portal demo-ctl launcher restart
    fi
    if [[ $changed == *" eirened "* ]]; then
        dk exec portal demo-ctl eirened restart
    fi
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

print_people() {
    say ""
    say "  Eirene's portal      http://eirene.localhost:$port   (Chromium, Firefox and curl know *.localhost)"
    local name
    for name in admin ada grace; do
        say "  $(printf '%-20s password %s' "$name" "$(password_of "$name")")"
    done
    say "  all this, for programs: $demo_json"
}
