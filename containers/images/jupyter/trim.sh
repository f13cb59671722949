#!/bin/sh
# Takes out what no session needs. Byte code is made here, because a session sees the image read-only and would compile at every
# start; it is never checked against the sources again, because those cannot change.
set -eu
apt-get purge -y --autoremove python3-venv python3.13-venv python3-pip-whl python3-setuptools-whl
rm -rf /var/lib/apt/lists/* /var/cache/apt /var/cache/debconf/*-old /var/log/* /usr/share/doc /usr/share/man /usr/share/info \
    /usr/share/locale /usr/share/i18n /usr/share/lintian
packages=/opt/jupyter/lib/python3.13/site-packages
find "$packages" -depth -type d \( -name tests -o -name test \) -exec rm -rf {} +
find /opt/jupyter/share /opt/jupyter/etc "$packages" -type f -name '*.map' -delete
rm -rf "$packages"/matplotlib/mpl-data/sample_data "$packages"/jupyterlab/galata
# JupyterLab reads this one file of its own build folder.
find "$packages"/jupyterlab/staging -type f ! -path '*/staging/package.json' -delete
find /usr/lib/python3 /usr/lib/python3.13 /opt/jupyter -depth -type d -name __pycache__ -exec rm -rf {} +
/opt/jupyter/bin/python -m compileall -q -j 0 --invalidation-mode unchecked-hash /usr/lib/python3.13 "$packages"
