#!/bin/sh
# torch without CUDA, the libraries around it, Open MPI.
set -eu
cd "$(dirname "$0")"
# shellcheck source=../jupyter/outside.sh
. ./jupyter/outside.sh
# binutils: for stand_ins.py; trim.sh takes it out again.
apt-get install -y --no-install-recommends openmpi-bin binutils
# Without dependencies: what torch names are NVIDIA's packages and triton.
/opt/jupyter/bin/pip install --no-cache-dir --no-compile --no-deps -r requirements.txt
python3 stand_ins.py /opt/jupyter/lib/python3.13/site-packages/torch
