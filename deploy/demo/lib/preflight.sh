# shellcheck shell=bash
# What the host must offer, found out before anything is installed or built. All problems are named at once, each with its cure.

oldest_docker=20.10
memory_gb=4
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
        problem "/dev/fuse is missing; Apptainer mounts images through it" "${root_hint}modprobe fuse"
    fi
    if [[ $(setting user/max_user_namespaces 1) == 0 ]]; then
        problem "user namespaces are switched off; Apptainer runs in them" "${root_hint}sysctl user.max_user_namespaces=15000"
    elif [[ $(setting kernel/unprivileged_userns_clone 1) == 0 ]]; then
        problem "only root may make user namespaces; Apptainer runs in them" "${root_hint}sysctl kernel.unprivileged_userns_clone=1"
    elif [[ $(setting kernel/apparmor_restrict_unprivileged_userns 0) == 1 ]]; then
        problem "AppArmor restricts user namespaces, as on recent Ubuntu; Apptainer runs in them" \
            "${root_hint}sysctl kernel.apparmor_restrict_unprivileged_userns=0"
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
    # Ours, of whichever release.
    if dk network ls --format '{{.Name}}' 2>/dev/null | grep -E "^$main_project(-.*)?_cluster\$" >/dev/null; then
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
    dk image inspect "${image_names[@]}" >/dev/null 2>&1 && return 0
    for place in /var/lib/docker "$repo_dir"; do
        while [[ ! -d $place ]]; do place=$(dirname "$place"); done
        free=$(df -Pk "$place" | awk 'NR == 2 {print int($4 / 1048576)}')
        if ((free < needed)); then
            problem "only $free GB are free under $place; images and build need $needed GB" \
                "make room there, for instance: docker system prune$( ((needed == 8)) || echo '; or EIRENE_DEMO_PYTORCH=0, which needs 8 GB')"
        fi
    done
}

# What is to be installed needs apt and root; asked before the first package.
check_packages() {
    local missing=()
    have docker || missing+=("Docker Engine")
    have_compose || missing+=("Docker Compose")
    have curl || missing+=(curl)
    [[ $cluster_only == 1 ]] || have cc || missing+=("a C compiler")
    ((${#missing[@]} > 0)) || return 0
    if ! have apt-get; then
        problem "missing here, and there is no apt-get to install it with: $(IFS=, && echo "${missing[*]}")" \
            "install it with this system's package manager, then run: make demo"
    elif ! can_be_root; then
        problem "missing here, and there is no sudo to install it with: $(IFS=, && echo "${missing[*]}")" "as root, run: make demo"
    fi
}

check_docker() {
    local version
    if docker --version 2>/dev/null | grep -i podman >/dev/null; then
        problem "\`docker\` is Podman here; the nodes need Docker Engine" "${root_hint}apt-get remove podman-docker, then run: make demo"
    elif docker_answers; then
        if dk info --format '{{.SecurityOptions}}' | grep rootless >/dev/null; then
            problem "this Docker runs rootless; the nodes need the ordinary engine" "docker context use default"
        fi
        version=$(dk version --format '{{.Server.Version}}')
        at_least "$version" "$oldest_docker" ||
            problem "Docker Engine is version $version; $oldest_docker or newer is needed" \
                "remove it with the package manager it came by, then run: make demo, which installs this release's own"
        check_owner
    elif [[ -S /var/run/docker.sock ]] && ! can_be_root; then
        problem "no access to the Docker socket" "as root: usermod -aG docker $(id -un)   and log in again"
    elif have docker && [[ ! -d /run/systemd/system ]] && ! can_be_root; then
        problem "the Docker daemon does not run, and starting it needs root" "as root, run: make demo"
    fi
}

check_memory() {
    local gb
    gb=$(awk '/^(MemTotal|SwapTotal):/ {kb += $2} END {printf "%.1f", kb / 1048576}' /proc/meminfo)
    at_least "$gb" "$memory_gb" ||
        problem "this machine has $gb GB of memory with swap; building and running the demo needs $memory_gb GB" "use a larger machine, or add swap"
}

# Images are built with pip's configuration file, which a variable alone does not reach.
check_mirrors() {
    if [[ -n ${PIP_INDEX_URL:-} && -z $(pip_configuration) && ! -e $machine_pip_configuration ]]; then
        # shellcheck disable=SC2016 # for the person's shell
        problem "PIP_INDEX_URL names a mirror, which image builds do not see; they read pip's configuration file" \
            'mkdir -p ~/.config/pip && printf "[global]\nindex-url = %s\n" "$PIP_INDEX_URL" >~/.config/pip/pip.conf'
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

# Names the release, for reports of faults, and says what is needed on one that no test runs on.
say_release() {
    case $(release_support) in
    tested) say "  $(release_name)" ;;
    expected) say "  $(release_name): expected to work, but our tests do not run on it" ;;
    *)
        say "  $(release_name): not tested; the demo is made for Debian 12 and 13 and Ubuntu 24.04"
        say "    It needs x86_64, Docker Engine $oldest_docker or newer with Compose, curl, a C compiler, debootstrap where images cannot be pulled. Going on."
        ;;
    esac
}

preflight() {
    check_kernel
    check_packages
    check_docker
    check_port
    check_network
    check_disk
    check_memory
    check_mirrors
    ((problems == 0)) || die "$problems thing(s) stand in the way; nothing was changed." ""
}
