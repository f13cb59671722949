# shellcheck shell=bash
# What `make test` and `make test-deep` share: stages with their times, the results of tests, what a stage needs. Sourced by tests/run and tests/deep.

# shellcheck source=../deploy/host.sh
source deploy/host.sh
# shellcheck disable=SC2034 # $command is the sourcing script's
command=${command:-make test}
# Tests leave their times here, for the list of the slowest.
export EIRENE_TEST_RESULTS=$PWD/var/tests
rm -rf "$EIRENE_TEST_RESULTS"
mkdir -p "$EIRENE_TEST_RESULTS"
# The cluster runs the programs that the tests' own build makes: nothing is compiled twice, and overflows are checked. `make demo` puts its
# own back.
export EIRENE_DEMO_TEST_BINARIES=1

begun=$SECONDS
stage_name= stage_at=0
stages=()
end_stage() {
    [[ -z $stage_name ]] || stages+=("$(printf '%5d s  %s' $((SECONDS - stage_at)) "$stage_name")")
}
stage() {
    end_stage
    stage_name=$1 stage_at=$SECONDS
    printf '==> [%4d s] %s\n' "$((SECONDS - begun))" "$1"
}
fail() { printf '%s: %s\n' "$command" "$*" >&2; exit 2; }
# beside NAME COMMAND…: starts a command beside the stages that follow; `joined NAME` waits for it and shows its output.
declare -A beside_pids=()
timed() { # timed NAME COMMAND…
    local name=$1 from=$SECONDS status=0
    shift
    "$@" || status=$?
    echo "$((SECONDS - from))" >"$EIRENE_TEST_RESULTS/$name.seconds"
    return "$status"
}
beside() {
    local name=$1
    shift
    # What it prints, passwords among it, is for nobody else. sudo cannot ask for a password later.
    (umask 077 && : >"$EIRENE_TEST_RESULTS/$name.log")
    ((EUID == 0)) || docker info >/dev/null 2>&1 || sudo -n true 2>/dev/null || sudo -v
    # A process group of its own, so that all of it ends where a stage fails.
    set -m
    timed "$name" "$@" >"$EIRENE_TEST_RESULTS/$name.log" 2>&1 </dev/null &
    set +m
    beside_pids[$name]=$!
}
joined() {
    local name=$1 status=0
    wait "${beside_pids[$name]}" || status=$?
    unset "beside_pids[$name]"
    cat "$EIRENE_TEST_RESULTS/$name.log"
    stages+=("$(printf '%5d s  %s, beside the stages before' "$(cat "$EIRENE_TEST_RESULTS/$name.seconds")" "$name")")
    ((status == 0)) || fail "\`$name\` failed, which ran beside the stages before this one; its output is above"
}
end_beside() {
    local pid
    for pid in "${beside_pids[@]}"; do
        kill -- "-$pid" 2>/dev/null || true
        ((EUID == 0)) || sudo -n kill -- "-$pid" 2>/dev/null || true
        wait "$pid" 2>/dev/null || true
    done
}
trap end_beside EXIT
# What this machine cannot run is said where it is found and once more at the end, where it is read.
left_out=()
finish() {
    end_stage
    stage_name=
    tests/slowest
    printf 'Stages:\n'
    printf '  %s\n' "${stages[@]}"
    ((${#left_out[@]} == 0)) || printf "$command: NOT RUN, because this machine cannot: %s\n" "${left_out[@]}" >&2
    printf '==> [%4d s] done\n' "$((SECONDS - begun))"
}

# nextest ARGUMENT…: cargo-nextest over the workspace, so that libraries have the same features in every run; its times are kept.
runs=0
nextest() {
    local status=0 junit=${CARGO_TARGET_DIR:-target}/nextest/default/junit.xml
    rm -f "$junit"
    "${around[@]}" cargo nextest run --workspace --locked "$@" || status=$?
    runs=$((runs + 1))
    [[ ! -e $junit ]] || cp "$junit" "$EIRENE_TEST_RESULTS/nextest-$runs.xml"
    return "$status"
}
# What stands before cargo: a server for its time, or root's rights for the tests alone.
around=()
with_postgres() { around=(database/tests/with-postgres); nextest "$@"; around=(); }
as_tests_root() { around=("${root_runner[@]}"); nextest "$@"; around=(); }

# Tests that look into the containers' volumes, act as several people, pretend to be several nodes, or make control groups, run as root; they are
# built as you.
# shellcheck disable=SC2034 # for the sourcing scripts
as_root_units='package(eirene-launcher) or package(eirene-train-lab) or (package(eirene-monitoring-probe) and binary(groups))'
root_runner=()

# prepare: the toolchain, nextest, and what the training runtime's tests need: real MPIs, and a SLURM that they start and end themselves.
prepare() {
    local host
    deploy/toolchain
    if ! cargo nextest --version >/dev/null 2>&1; then
        stage "installing cargo-nextest (once, some minutes)"
        # Without optimisation, lines for a debugger, probes and updates of itself, which take most of the time and are not missed.
        CARGO_PROFILE_DEV_DEBUG=false cargo install cargo-nextest --version 0.9.143 --locked --quiet --debug --no-default-features
    fi
    training/needs
    deploy/packages python3=python3
    if ((EUID != 0)); then
        host=$(rustc -vV | sed -n 's/^host: //p' | tr 'a-z-' 'A-Z_')
        root_runner=(env "CARGO_TARGET_${host}_RUNNER=sudo -E env PATH=$PATH")
    fi
}

# What a first run leaves: 6 GB of programs and tests, 6 of torch as it comes from the registry, 5 of Docker's, 2 of images.
enough_disk() {
    local wanted=20 free
    free=$(df -Pk . | awk 'NR == 2 {print int($4 / 1048576)}')
    [[ -d target/debug && -d var/training ]] || ((free >= wanted)) ||
        fail "only $free GB are free here, and a first run needs $wanted. Cure: free space, for instance with docker system prune"
}

# demo_cluster: brings it up, by the demo's own variables.
demo_cluster() {
    deploy/demo/up
    use_demo_cluster
}
# use_demo_cluster: tells the tests where it is.
use_demo_cluster() {
    # The tests call `docker`; who may only use it through sudo gets one that does.
    if ! docker version >/dev/null 2>&1; then
        mkdir -p var/demo/bin
        printf '#!/bin/sh\nexec sudo %s "$@"\n' "$(command -v docker)" >var/demo/bin/docker
        chmod +x var/demo/bin/docker
        PATH=$PWD/var/demo/bin:$PATH
    fi
    export EIRENE_TEST_CLUSTER=$PWD/var/demo.json
}

browser_tests_ready() {
    local node chromium=${EIRENE_TEST_CHROMIUM:-/usr/bin/chromium}
    [[ -x $chromium ]] || deploy/packages "$chromium=chromium" ||
        fail "the browser tests need Chromium at $chromium. Cure: install Chromium or Chrome, and export EIRENE_TEST_CHROMIUM with the path of its program"
    node=$(deploy/node)
    PATH=$node:$PATH
    (cd frontend/tests && npm ci --silent --no-audit --no-fund)
}
