"""Makes a CPU build of torch's CUDA build: takes out the GPU's code, and puts small libraries in the place of NVIDIA's.

The registry has no CPU build. torch's libraries name NVIDIA's as needed, several GB of packages, and the dynamic linker refuses to
load torch without them. What they really want of them is five hundred functions of C, which do nothing without a GPU. A stand-in
exports exactly these, under the versions that torch asks for; each answers what CUDA answers where there is no GPU, so that
`torch.cuda.is_available()` is false, also on a node that has some, and who asks for a GPU gets torch's own error.

torch's own library for CUDA stays, because its types and registrations are part of `import torch`; but the GPU's machine code in it
(two thirds of the file) is overwritten with zeros, which an image stores in no space. Nothing reads it: it is handed to CUDA's
run time as it is, and that is a stand-in.

Run as ``stand_ins.py TORCH`` with binutils (`readelf`, `as`, `ld`, `strip`) in the path; TORCH is the package's folder. Linux, x86_64.
"""

import re
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

# NVIDIA's, as far as torch's libraries name them.
FOREIGN = re.compile(r"lib(cu|nv|nccl)\w*\.so\.\d+")
# Opened only once a GPU is used.
LATE = ("libtorch_cuda_linalg.so", "libcaffe2_nvrtc.so", "libgfortran.so.5")
GPU_CODE = ".nv_fatbin"
# Functions that return words, not a number: `cudaGetErrorString`, `ncclGetLastError`.
WORDS = re.compile(r"Get(ErrorString|ErrorName|LastErrorString)$|^ncclGetLastError$")
# More than any variable that torch's libraries share with NVIDIA's (the state of nvshmem), which are all zero before a start.
DATA_BYTES = 65536

# Every function of a stand-in is one of the first two: `cudaErrorNoDevice`, or the words for whoever asks what an error means.
PROGRAM = """
    .text
refuses:
    movl $100, %eax
    ret
explains:
    leaq reason(%rip), %rax
    ret
    .section .rodata
reason:
    .string "this image's torch runs on the CPU only"
    .section .note.GNU-stack,"",@progbits
"""


class Wanted(NamedTuple):
    """A symbol that one of torch's libraries takes from one of NVIDIA's."""

    version: str
    is_data: bool


def output(*command: str | Path) -> str:
    """What a program printed."""
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def wanted_of(library: Path) -> dict[str, dict[str, Wanted]]:
    """What this library takes from each of NVIDIA's that it names."""
    needed = re.findall(r"\(NEEDED\).*\[(.*)\]", output("readelf", "--dynamic", "--wide", library))
    if late := set(needed) & set(LATE):
        sys.exit(f"{library.name} needs {late}, which was to be left out")
    foreign: dict[str, dict[str, Wanted]] = {name: {} for name in needed if FOREIGN.fullmatch(name)}
    owner: dict[str, str] = {}
    file = ""
    for line in output("readelf", "--version-info", "--wide", library).splitlines():
        if found := re.search(r"File: (\S+)", line):
            file = found[1]
        elif found := re.search(r"Name: (\S+)", line):
            owner[found[1]] = file
    for line in output("readelf", "--dyn-syms", "--wide", library).splitlines():
        found = re.match(r"\s*\d+: \S+\s+\d+ (\w+)\s+\w+\s+\w+\s+UND (\w+)(?:@(\S+))?", line)
        if not found:
            continue
        kind, name, version = found[1], found[2], found[3] or ""
        # Libraries without versions begin the names of their functions with their own.
        own = [key for key in foreign if name.lower().startswith(key[3:].partition(".")[0].lower())]
        file = owner.get(version, "") or max(own, key=len, default="")
        if file in foreign:
            foreign[file][name] = Wanted(version, is_data=kind == "OBJECT")
    return foreign


def make(library: Path, symbols: dict[str, Wanted]) -> None:
    """Writes a stand-in with these symbols."""
    code = [PROGRAM]
    for name, wanted in sorted(symbols.items()):
        if wanted.is_data:
            code.append(f".comm {name}, {DATA_BYTES}, 64\n")
        else:
            answer = "explains" if WORDS.search(name) else "refuses"
            code.append(f".globl {name}\n.type {name}, @function\n.set {name}, {answer}\n")
    with tempfile.TemporaryDirectory() as directory:
        source, compiled, versions = (Path(directory) / name for name in ("code.s", "code.o", "versions"))
        source.write_text("".join(code))
        output("as", "-o", compiled, source)
        names = sorted({wanted.version for wanted in symbols.values()} - {""})
        versions.write_text("".join(f"{name} {{ global: *; }};\n" for name in names))
        script = [f"--version-script={versions}"] if names else []
        output("ld", "-shared", "-z", "relro", "--soname", library.name, *script, "-o", library, compiled)
    library.chmod(0o644)


def remove_gpu_code(library: Path) -> int:
    """Overwrites the GPU's machine code with zeros: how many bytes that were."""
    sections = output("readelf", "--section-headers", "--wide", library)
    found = re.search(rf"{re.escape(GPU_CODE)}\s+\w+\s+\w+\s+(\w+)\s+(\w+)", sections)
    if not found:
        return 0
    offset, size = (int(number, 16) for number in found.groups())
    with library.open("r+b") as file:
        file.seek(offset)
        file.write(bytes(size))
    print(f"{library.name}: {size >> 10} KiB of GPU code were overwritten")
    return size


def main(torch: Path) -> None:
    """All of it."""
    folder = torch / "lib"
    for name in LATE:
        (folder / name).unlink()
    wanted: dict[str, dict[str, Wanted]] = defaultdict(dict)
    overwritten = 0
    for library in sorted(path for path in folder.iterdir() if ".so" in path.name):
        # The names of functions inside: for debuggers.
        output("strip", "--strip-unneeded", library)
        overwritten += remove_gpu_code(library)
        for name, symbols in wanted_of(library).items():
            wanted[name].update(symbols)
    if overwritten == 0:
        sys.exit(f"no library of this torch has a section `{GPU_CODE}`: its GPU code is elsewhere now")
    for name, symbols in sorted(wanted.items()):
        make(folder / name, symbols)
        print(f"{name}: a stand-in with {len(symbols)} symbols, {(folder / name).stat().st_size >> 10} KiB")


main(Path(sys.argv[1]))
