#!/bin/sh
# Python with JupyterLab in /opt/jupyter. Recipes that build on this one run it too, and then `trim.sh` and `check.py`.
set -eu
cd "$(dirname "$0")"
. ./outside.sh
apt-get update
apt-get install -y --no-install-recommends ca-certificates python3 python3-venv
# The person's own packages (`pip install --user`) are seen, but the image's come first.
python3 -m venv --system-site-packages /opt/jupyter
# Without dependencies: the list is complete, and leaves out debugpy, which listens on TCP.
/opt/jupyter/bin/pip install --no-cache-dir --no-compile --no-deps -r requirements.txt
# The kernel, and `eirene.report` for what programs say of themselves.
cp -R eirene_kernel eirene.py /opt/jupyter/lib/python3.13/site-packages/
cp -R etc/. /opt/jupyter/etc/
# Nobody is asked about news, and no node asks the internet for new versions.
install -D -m 0644 overrides.json /opt/jupyter/share/jupyter/lab/settings/overrides.json
cp eirene_kernel/kernel.json /opt/jupyter/share/jupyter/kernels/python3/kernel.json
