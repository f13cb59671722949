# shellcheck shell=bash
# Docker Engine and Compose: installed if missing, started if not running.

have_compose() { docker compose version >/dev/null 2>&1 || docker-compose version >/dev/null 2>&1; }

first_candidate() {
    local name
    for name in "$@"; do
        if candidate "$name"; then
            echo "$name"
            return 0
        fi
    done
    echo "$1"
}

apt_install() {
    say "      installing with apt: $*"
    # A signal to this script must not stop dpkg halfway.
    (trap '' TERM && as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends --no-remove "$@")
}

install_packages() {
    local missing=()
    [[ $cluster_only == 1 ]] || "$repo_dir/deploy/toolchain" >&3
    if have docker && have_compose && have curl; then
        return 0
    fi
    as_root apt-get update
    if ! have docker || { [[ ! -S /var/run/docker.sock ]] && ! have dockerd; }; then
        missing+=(docker.io iptables)
        ! candidate docker-cli || missing+=(docker-cli)
    fi
    have_compose || missing+=("$(first_candidate docker-compose-plugin docker-compose-v2 docker-compose)")
    have curl || missing+=(curl)
    [[ ${#missing[@]} == 0 ]] || apt_install "${missing[@]}"
}

start_engine() {
    docker_answers && return 0
    if [[ -d /run/systemd/system ]]; then
        as_root systemctl start docker
    else
        say "      no service manager here: starting dockerd (log: $state_dir/dockerd.log)"
        # By `exec`, so that no shell stays and holds the caller's pipes open.
        # shellcheck disable=SC2024  # the log belongs to the caller
        (
            exec 3>&- >"$state_dir/dockerd.log" 2>&1 </dev/null
            exec "${as_root_command[@]}" setsid dockerd --pidfile "$state_dir/dockerd.pid"
        ) &
    fi
    if ! wait_until 60 "the Docker daemon answers" docker_answers; then
        tail -n 20 "$state_dir/dockerd.log" 2>/dev/null || true
        return 1
    fi
    docker_answers
}

# Stops the daemon that start_engine started, unless somebody else's containers run in it by now.
stop_engine() {
    local pid
    pid=$(cat "$state_dir/dockerd.pid" 2>/dev/null) || return 0
    [[ $(cat "/proc/$pid/comm" 2>/dev/null) == dockerd ]] || return 0
    if [[ -n $(dk ps -q) ]]; then
        say "      dockerd stays: other containers are running in it"
        return 0
    fi
    as_root kill "$pid"
    wait_until 30 "dockerd ends" test ! -e "/proc/$pid"
    as_root ip link delete docker0 2>/dev/null || true
}
