# shellcheck shell=bash
# What the host must offer, found out before anything is installed or built. All problems are named at once, each with its cure.

problems=0

problem() { # problem WHAT CURE
    ((problems += 1))
    printf '  ✗ %s\n    cure: %s\n' "$1" "$2" >&3
}

setting() { cat "/proc/sys/$1" 2>/dev/null || echo "$2"; }

check_kernel() {
    if [[ $(uname -sm) != "Linux x86_64" ]]; then
        problem "this is $(uname -sm); the demo cluster runs on Linux x86_64" "use an x86_64 Debian or Ubuntu machine, a virtual one will do"
    fi
    if [[ ! -c /dev/fuse ]]; then
        problem "/dev/fuse is missing; Apptainer mounts images through it" "sudo modprobe fuse"
    fi
    if [[ $(setting user/max_user_namespaces 1) == 0 ]]; then
        problem "user namespaces are switched off; Apptainer runs in them" "sudo sysctl user.max_user_namespaces=15000"
    elif [[ $(setting kernel/unprivileged_userns_clone 1) == 0 ]]; then
        problem "only root may make user namespaces; Apptainer runs in them" "sudo sysctl kernel.unprivileged_userns_clone=1"
    elif [[ $(setting kernel/apparmor_restrict_unprivileged_userns 0) == 1 ]]; then
        problem "AppArmor restricts user namespaces, as on recent Ubuntu; Apptainer runs in them" \
            "sudo sysctl kernel.apparmor_restrict_unprivileged_userns=0"
    elif ! unprivileged unshare --user --map-root-user true 2>/dev/null; then
        problem "an ordinary user cannot make a user namespace (unshare --user fails); Apptainer runs in them" \
            "see what forbids it: unshare --user --map-root-user true"
    fi
}

unprivileged() {
    if ((EUID == 0)); then
        setpriv --reuid=65534 --regid=65534 --clear-groups "$@"
    else
        "$@"
    fi
}

check_port() {
    running portal && return 0
    if (: <"/dev/tcp/127.0.0.1/$port") 2>/dev/null; then
        problem "port $port on 127.0.0.1 is taken" "EIRENE_DEMO_PORT=$((port + 1)) make demo"
    fi
}

check_network() {
    if dk network inspect "${project}_cluster" >/dev/null 2>&1; then
        return 0
    fi
    # A bridge outlives a daemon that was killed; whose it is, the daemon says once it runs again.
    if ! docker_answers && ip -4 route 2>/dev/null | grep -F "$net." | grep ' dev br-' >/dev/null; then
        return 0
    fi
    if ip -4 route 2>/dev/null | grep -F "$net." >/dev/null; then
        problem "the network $net.0/24 is in use on this machine" "EIRENE_DEMO_NET=10.89.78 make demo"
    fi
}

check_disk() {
    local place free needed=8
    # Its layers, its archive and its file are there at once for a moment.
    [[ $with_pytorch != 1 || $cluster_only == 1 ]] || needed=14
    dk image inspect eirene-demo-head eirene-demo-node eirene-demo-portal >/dev/null 2>&1 && return 0
    for place in /var/lib/docker "$repo_dir"; do
        while [[ ! -d $place ]]; do place=$(dirname "$place"); done
        free=$(df -Pk "$place" | awk 'NR == 2 {print int($4 / 1048576)}')
        if ((free < needed)); then
            problem "only $free GB are free under $place; images and build need $needed GB" \
                "make room there, for instance: docker system prune$( ((needed == 8)) || echo '; or EIRENE_DEMO_PYTORCH=0, which needs 8 GB')"
        fi
    done
}

check_packages() {
    if ! have docker || ! have_compose || ! have curl || { [[ $cluster_only != 1 ]] && { ! have cc || ! have cargo; }; }; then
        have apt-get || problem "Docker, Compose, a C compiler or curl is missing and there is no apt-get to install it with" \
            "install Docker Engine with Compose, gcc and curl by hand"
        if ((EUID != 0)) && ! have sudo; then
            problem "packages are missing, and there is no sudo to install them with" "run it as root"
        fi
    fi
    if [[ $cluster_only != 1 ]] && ! have cargo && ! have apt-get; then
        problem "cargo is missing; it builds Eirene's binaries" "install Rust: see https://rustup.rs"
    fi
}

check_docker() {
    if docker_answers; then
        if dk info --format '{{.SecurityOptions}}' | grep rootless >/dev/null; then
            problem "this Docker runs rootless; the nodes need the ordinary engine" "docker context use default"
        fi
        check_owner
    elif [[ -S /var/run/docker.sock ]] && ((EUID != 0)) && ! have sudo; then
        problem "no access to the Docker socket" "sudo usermod -aG docker $(id -un)   and log in again"
    elif [[ ! -d /run/systemd/system ]] && ((EUID != 0)) && ! have sudo; then
        problem "the Docker daemon does not run, and starting it needs root" "run it as root"
    fi
}

# The containers have fixed names, so there is one demo cluster on a machine.
check_owner() {
    local name label
    for name in head c1 c2 portal; do
        dk inspect "$name" >/dev/null 2>&1 || continue
        label=$(dk inspect -f '{{index .Config.Labels "com.docker.compose.project.working_dir"}}' "$name")
        if [[ $label != "$demo_dir" ]]; then
            problem "there is already a container named $name${label:+, from $label}" "docker rm -f $name   (or make demo-down in that checkout)"
        fi
    done
}

preflight() {
    check_kernel
    check_packages
    check_docker
    check_port
    check_network
    check_disk
    ((problems == 0)) || die "$problems thing(s) stand in the way; nothing was changed." ""
}
