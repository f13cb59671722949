# shellcheck shell=bash
# Paths, settings, progress lines and the two commands everything goes through (dk, compose). Sourced by up and down.

demo_dir=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
repo_dir=$(cd "$demo_dir/../.." && pwd)
var_dir=$repo_dir/var
state_dir=$var_dir/demo        # everything that only the demo cluster needs; `down` removes it
bin_dir=$var_dir/bin           # mounted at /opt/eirene/bin
images_dir=$var_dir/images     # SIF files made from containers/images
demo_json=$var_dir/demo.json
log_file=$state_dir/up.log

port=${EIRENE_DEMO_PORT:-8080}
adapter=${EIRENE_DEMO_ADAPTER:-slurmrestd}
net=${EIRENE_DEMO_NET:-10.89.77}
cluster_only=${EIRENE_DEMO_CLUSTER_ONLY:-0}
with_pytorch=${EIRENE_DEMO_PYTORCH:-1}
with_mpis=${EIRENE_DEMO_MPIS:-0}
test_binaries=${EIRENE_DEMO_TEST_BINARIES:-0}
release=${EIRENE_DEMO_RELEASE:-trixie}
base_image=debian:$release-slim
# SLURM does not go back to the files of an older version, so each release has its own images and volumes.
main_project=eirene-demo
project=$main_project
[[ $release == trixie ]] || project=$main_project-$release

started_at=$SECONDS
step_name=
step_at=0
ticker=

exec 3>&1

say() { printf '%s\n' "$*" >&3; }
warn() { printf '      ! %s\n' "$*" >&3; }

die() { # die WHAT CURE
    step_name=
    stop_ticker
    printf '\n%s\n' "$1" >&3
    [[ -z ${2:-} ]] || printf '  cure: %s\n' "$2" >&3
    exit 1
}

stop_ticker() {
    if [[ -n $ticker ]]; then
        kill "$ticker" 2>/dev/null || true
        wait "$ticker" 2>/dev/null || true
        ticker=
        printf '\r\033[K' >&3
    fi
}

# step TEXT COMMAND...: one progress line with its seconds. The command's output goes to the log, `say` and `warn` to the screen.
step() {
    step_name=$1
    step_at=$SECONDS
    shift
    if [[ -t 3 ]]; then
        (while :; do
            printf '\r\033[K  … %s  %d s' "$step_name" $((SECONDS - step_at)) >&3
            sleep 1
        done) &
        ticker=$!
    fi
    printf '== %s\n' "$step_name" >>"$log_file"
    "$@" >>"$log_file" 2>&1
    stop_ticker
    printf '  ✓ %-58s %4d s\n' "$step_name" $((SECONDS - step_at)) >&3
    step_name=
}

# The process that compiles beside the steps, if there is one.
compiler=

on_exit() {
    local status=$?
    stop_ticker
    [[ -z $compiler ]] || kill -- "-$compiler" 2>/dev/null || true
    if ((status != 0)) && [[ -n $step_name ]]; then
        {
            printf '  ✗ %s (after %d s). The end of %s:\n\n' "$step_name" $((SECONDS - step_at)) "$log_file"
            tail -n 30 "$log_file" | sed 's/^/      /'
        } >&3
    fi
    exit "$status"
}

# The docker client, through sudo where the socket asks for it.
docker_command=(docker)
dk() { "${docker_command[@]}" "$@"; }

docker_answers() {
    if docker info >/dev/null 2>&1; then
        docker_command=(docker)
    elif ((EUID != 0)) && have sudo && as_root docker info >/dev/null 2>&1; then
        docker_command=("${as_root_command[@]}" docker)
    else
        return 1
    fi
}

compose() {
    local command=("${docker_command[@]}" compose)
    if ! docker compose version >/dev/null 2>&1; then
        command=("${docker_command[@]::${#docker_command[@]}-1}" docker-compose)
    fi
    "${command[@]}" --env-file "$state_dir/compose.env" -p "$project" -f "$demo_dir/compose.yaml" "$@"
}

# The variables of compose.yaml go through a file, so that sudo cannot lose them. The two hashes make Compose replace the
# containers whose configuration has changed, and no others.
write_compose_env() {
    local common portal file
    mkdir -p "$state_dir/etc" "$state_dir/context"
    for file in eirened.toml launcher.toml; do
        sed "s/@PORT@/$port/g; s/@ADAPTER@/$adapter/g" "$demo_dir/$file" >"$state_dir/etc/$file"
    done
    common=$(hash_of "$demo_dir/slurm")
    portal=$(hash_of "$demo_dir/slurm" "$state_dir/etc")
    # A proxy may have a password in it.
    (umask 077 && rm -f "$state_dir/compose.env" && : >"$state_dir/compose.env")
    printf '%s=%s\n' \
        EIRENE_DEMO_PROJECT "$project" \
        EIRENE_DEMO_BASE_IMAGE "$base_image" \
        EIRENE_DEMO_CONTEXT "$state_dir/context" \
        EIRENE_DEMO_NET "$net" \
        EIRENE_DEMO_PORT "$port" \
        EIRENE_DEMO_HTTP_PROXY "$(outside_proxy http_proxy HTTP_PROXY)" \
        EIRENE_DEMO_HTTPS_PROXY "$(outside_proxy https_proxy HTTPS_PROXY)" \
        EIRENE_DEMO_NO_PROXY "${no_proxy:-}" \
        EIRENE_DEMO_CONFIG_HASH "$common" \
        EIRENE_DEMO_PORTAL_HASH "$portal" >>"$state_dir/compose.env"
}

# outside_proxy NAME...: the first of these variables that is set, for builds in containers; one on this machine's loopback is of no use there.
outside_proxy() {
    local name
    for name in "$@"; do
        if [[ -n ${!name:-} ]]; then
            grep -vE 'localhost|127\.0\.0\.|\[::1\]' <<<"${!name}" || true
            return 0
        fi
    done
}

# hash_of PATH...: one hash over names, modes and contents of all files below, but for the byte code that Python leaves there.
hash_of() {
    local path
    for path in "$@"; do
        (cd "$path" && find . -name __pycache__ -prune -o -type f -printf '%P %m\n' | LC_ALL=C sort &&
            find . -name __pycache__ -prune -o -type f -print0 | LC_ALL=C sort -z | xargs -0r sha256sum)
    done | sha256sum | cut -c1-32
}

running() { [[ $(dk inspect -f '{{.State.Running}}' "$1" 2>/dev/null) == true ]]; }

# wait_until SECONDS WHAT COMMAND...
wait_until() {
    local limit=$1 what=$2 until
    shift 2
    until=$((SECONDS + limit))
    until "$@" >/dev/null 2>&1; do
        if ((SECONDS >= until)); then
            echo "not within $limit s: $what" >&2
            return 1
        fi
        sleep 0.3
    done
}
