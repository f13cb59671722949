# shellcheck shell=bash
# What every set-up script needs to know of this machine: where programs are, in which language they answer, the home directory, the way to root's
# rights, proxies, and the release. Sourced; it changes variables of this shell and nothing else.

# Scripts read what programs print: in one language.
unset LANGUAGE
export LC_ALL=C.UTF-8

export HOME="${HOME:-$(getent passwd "$(id -u)" | cut -d: -f6)}"
# rustup's programs come before a cargo of the distribution, which is too old.
export PATH="${CARGO_HOME:-$HOME/.cargo}/bin:$PATH:/usr/sbin:/sbin"

# A proxy of the environment is for the outside, not for what runs here.
proxy_variables=()
for name in http_proxy https_proxy HTTP_PROXY HTTPS_PROXY; do
    [[ -z ${!name:-} ]] || proxy_variables+=("$name")
done
if ((${#proxy_variables[@]} > 0)); then
    no_proxy=${no_proxy:-${NO_PROXY:-}}${no_proxy:+,}localhost,127.0.0.1,::1,.localhost
    export no_proxy NO_PROXY=$no_proxy
    proxy_variables+=(no_proxy NO_PROXY)
fi

# at_least VERSION WANTED
at_least() { [[ $(printf '%s\n' "$1" "$2" | sort -V | head -n 1) == "$2" ]]; }
have() { command -v "$1" >/dev/null 2>&1; }

# How a command gets root's rights here. Proxies go along by name, because one with a password must not be in an argument list.
as_root_command=()
if ((EUID != 0)); then
    as_root_command=(sudo)
    ((${#proxy_variables[@]} == 0)) || as_root_command+=("--preserve-env=$(IFS=, && echo "${proxy_variables[*]}")")
fi
as_root() { "${as_root_command[@]}" "$@"; }
can_be_root() { ((EUID == 0)) || have sudo; }
# The same for a command that a person is to type.
root_hint=
((EUID == 0)) || root_hint='sudo '

# candidate NAME: does apt know a version of this package?
candidate() { [[ $(apt-cache policy "$1" 2>/dev/null | awk '/Candidate:/ {print $2}') =~ ^[^\(] ]]; }

os_release_file=/etc/os-release
# os_release FIELD: one field of os-release(5), or nothing.
os_release() { sed -n "s/^$1=//p" "$os_release_file" 2>/dev/null | tr -d "\"'"; }

# What this system is called, for people.
release_name() {
    local name
    name=$(os_release PRETTY_NAME)
    echo "${name:-an unknown Linux}"
}

# `tested`, `expected` (should work, but no test runs there) or `unknown`.
release_support() {
    case "$(os_release ID) $(os_release VERSION_ID)" in
    "debian 12" | "debian 13") echo tested ;;
    "ubuntu 24.04") echo expected ;;
    *) echo unknown ;;
    esac
}

machine_pip_configuration=/etc/pip.conf
# pip_configuration: the person's own configuration of pip, where there is one.
pip_configuration() {
    local file
    for file in "${PIP_CONFIG_FILE:-}" "${XDG_CONFIG_HOME:-$HOME/.config}/pip/pip.conf" "$HOME/.pip/pip.conf"; do
        if [[ -f $file && -r $file ]]; then
            echo "$file"
            return 0
        fi
    done
}
