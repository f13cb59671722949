# shellcheck shell=sh
# Sourced by every step of a build that fetches something: what lets this machine reach the outside, where the context has it.
touch /tmp/build/apt.conf /tmp/build/pip.conf
export APT_CONFIG=/tmp/build/apt.conf PIP_CONFIG_FILE=/tmp/build/pip.conf DEBIAN_FRONTEND=noninteractive
if [ -e /tmp/build/ca-certificates.crt ]; then export PIP_CERT=/tmp/build/ca-certificates.crt; fi
