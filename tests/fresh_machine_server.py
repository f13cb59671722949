"""Serves rustup and one Rust toolchain on the loopback, as static.rust-lang.org does: rustup's installer, the channel's manifest and its components,
made from the toolchain and the rustup that are installed here.

    fresh_machine_server.py DIRECTORY SYSROOT RUSTUP VERSION CHANNEL

Writes what it serves into DIRECTORY, prints its port, and serves until it is ended. `/broken` serves the same with a byte more in the installer.
"""

import functools
import hashlib
import http.server
import pathlib
import shutil
import sys
import tarfile
import tomllib

TARGET = "x86_64-unknown-linux-gnu"
COMPONENTS = ["rustc", "cargo", "rust-std", "clippy-preview", "rustfmt-preview"]


def pack(sysroot: pathlib.Path, component: str, archive: pathlib.Path) -> None:
    """One component in the layout of rust-installer, version 3."""
    folder = f"{component}-{TARGET}"
    manifest = (sysroot / "lib/rustlib" / f"manifest-{folder}").read_text()
    with tarfile.open(archive, "w:gz", compresslevel=1) as tar:

        def text(name: str, content: str) -> None:
            path = archive.with_suffix(".tmp")
            path.write_text(content)
            tar.add(path, f"{folder}/{name}")
            path.unlink()

        text("rust-installer-version", "3\n")
        text("components", folder + "\n")
        text(f"{folder}/manifest.in", manifest)
        for line in manifest.splitlines():
            path = line.partition(":")[2]
            tar.add(sysroot / path, f"{folder}/{folder}/{path}")


def sha256(path: pathlib.Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def channel_manifest(sysroot: pathlib.Path, server: str, root: pathlib.Path) -> str:
    """The manifest of the channel with our components alone."""
    real = tomllib.loads((sysroot / "lib/rustlib/multirust-channel-manifest.toml").read_text())
    lines = ['manifest-version = "2"', f'date = "{real["date"]}"', "[profiles]", 'minimal = ["rustc", "cargo", "rust-std"]']
    lines += ["[renames.clippy]", 'to = "clippy-preview"', "[renames.rustfmt]", 'to = "rustfmt-preview"']
    for component in COMPONENTS:
        archive = root / "dist" / f"{component}.tar.gz"
        lines += [
            f"[pkg.{component}]",
            f'version = "{real["pkg"][component]["version"]}"',
            f"[pkg.{component}.target.{TARGET}]",
            "available = true",
            f'url = "{server}/dist/{archive.name}"',
            f'hash = "{sha256(archive)}"',
        ]
    reference = "[" + ", ".join(f'{{ pkg = "{name}", target = "{TARGET}" }}' for name in COMPONENTS[:3]) + "]"
    extensions = "[" + ", ".join(f'{{ pkg = "{name}", target = "{TARGET}" }}' for name in COMPONENTS[3:]) + "]"
    lines += [
        "[pkg.rust]",
        f'version = "{real["pkg"]["rust"]["version"]}"',
        f"[pkg.rust.target.{TARGET}]",
        "available = true",
        # The whole as one archive is what an installer without rustup takes; rustup takes the components.
        f'url = "{server}/dist/rust.tar.gz"',
        f'hash = "{"0" * 64}"',
        f"components = {reference}",
        f"extensions = {extensions}",
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    root, sysroot, rustup = (pathlib.Path(argument) for argument in sys.argv[1:4])
    version, channel = sys.argv[4:6]
    dist = root / "dist"
    dist.mkdir(parents=True, exist_ok=True)
    for component in COMPONENTS:
        archive = dist / f"{component}.tar.gz"
        if not archive.exists():
            pack(sysroot, component, archive)
    for kind in ("rustup", "broken"):
        folder = root / kind / "archive" / version / TARGET
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(rustup, folder / "rustup-init")
    with (root / "broken/archive" / version / TARGET / "rustup-init").open("ab") as file:
        file.write(b"\n")

    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=root)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        manifest = channel_manifest(sysroot, f"http://127.0.0.1:{server.server_port}", root)
        (dist / f"channel-rust-{channel}.toml").write_text(manifest)
        digest = hashlib.sha256(manifest.encode()).hexdigest()
        (dist / f"channel-rust-{channel}.toml.sha256").write_text(f"{digest}  channel-rust-{channel}.toml\n")
        print(server.server_port, flush=True)
        server.serve_forever()


if __name__ == "__main__":
    main()
