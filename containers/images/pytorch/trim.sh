#!/bin/sh
# Takes out what training on the CPU does not need; the recipe `jupyter`'s own trim.sh follows, for both.
set -eu
apt-get purge -y --autoremove binutils
# Open MPI's UCX can reach the memory of AMD's GPUs, by a compiler of 240 MB that nothing else here uses. The modules that would
# open it go too: UCX does without modules that are not there. Files, not packages: apt wants no package whose needs are missing.
dpkg-query --listfiles libamdhip64-5 libhsa-runtime64-1 libhsakmt1 libamd-comgr2 libllvm17t64 libz3-4 | sort -u | while read -r path; do
    [ -d "$path" ] || rm -f "$path"
done
rm -f /usr/lib/x86_64-linux-gnu/ucx/*rocm*
torch=/opt/jupyter/lib/python3.13/site-packages/torch
# For compiling C++ against torch: the image has no compiler.
rm -rf "$torch"/include "$torch"/share "$torch"/bin/protoc*
