"""A virtual environment for each framework, which takes torch from the Python that measures."""

import os
import shutil
import subprocess
import sysconfig
import venv
from dataclasses import dataclass
from pathlib import Path

TORCH = (Path(__file__).parents[2] / "constraints.txt").resolve()
"""The version of torch that every framework is given."""
INSTALL_SECONDS = 1800


@dataclass(frozen=True)
class Peer:
    """What is installed for a framework, and how."""

    packages: tuple[str, ...]
    """The first one names the version in the table."""
    variables: tuple[tuple[str, str], ...] = ()
    """For the building of its wheels."""
    options: tuple[str, ...] = ()
    patched: tuple[tuple[str, str, str], ...] = ()
    """In its sources: the file, what stands there, and what has to."""


PEERS = {
    "accelerate": Peer(("accelerate",)),
    "lightning": Peer(("lightning",)),
    # Without its compiled operations, which want CUDA; it builds those for CPUs at its first start.
    "deepspeed": Peer(
        ("deepspeed", "ninja"), (("DS_BUILD_OPS", "0"),), options=("--no-build-isolation",)
    ),
    "ray": Peer(("ray[train]",)),
    "tensorflow": Peer(("tensorflow-cpu",)),
    # Its last release is older than the C++17 that torch's headers want.
    "horovod": Peer(
        ("horovod",),
        (
            ("HOROVOD_WITH_PYTORCH", "1"),
            ("HOROVOD_WITH_GLOO", "1"),
            ("HOROVOD_WITHOUT_MPI", "1"),
            ("HOROVOD_WITHOUT_TENSORFLOW", "1"),
            ("HOROVOD_WITHOUT_MXNET", "1"),
        ),
        options=("--no-build-isolation",),
        patched=tuple(
            (file, "CXX_STANDARD 14", "CXX_STANDARD 17")
            for file in ("CMakeLists.txt", "horovod/torch/CMakeLists.txt")
        ),
    ),
}


class CannotInstall(RuntimeError):
    """A framework that does not install here, with the last error it said."""


def interpreter(name: str, environments: Path) -> Path:
    """The Python that has the framework; installs it where that was not done before."""
    folder = environments / name
    python = folder / "bin" / "python"
    if not (folder / "installed").exists():
        venv.create(folder, clear=True, with_pip=True)
        _borrow_torch(folder)
        _install(PEERS[name], python, folder)
        (folder / "installed").touch()
    return python


def version(name: str, python: Path) -> str:
    """The version of a framework, or of another package, that this Python has."""
    package = PEERS[name].packages[0].partition("[")[0] if name in PEERS else name
    program = f"from importlib.metadata import version; print(version({package!r}))"
    return subprocess.check_output([python, "-c", program], text=True).strip()


def _borrow_torch(folder: Path) -> None:
    """What is installed here is found there too, after the environment's own packages."""
    theirs = sysconfig.get_path("purelib", vars={"base": str(folder), "platbase": str(folder)})
    ours = sysconfig.get_path("purelib")
    (Path(theirs) / "torch-from-outside.pth").write_text(ours + "\n")


def _install(peer: Peer, python: Path, folder: Path) -> None:
    pip = [python, "-m", "pip", "--disable-pip-version-check", "--quiet"]
    if not peer.patched:
        _run([*pip, "install", "-c", TORCH, *peer.options, *peer.packages], peer)
        return
    (package,) = peer.packages
    sources = folder / "sources"
    _run([*pip, "install", "setuptools<80", "wheel"], peer)
    _run([*pip, "download", "--no-deps", "--no-binary", ":all:", package, "-d", sources], peer)
    (archive,) = sources.glob("*.tar.gz")
    shutil.unpack_archive(archive, sources)
    (unpacked,) = (path for path in sources.iterdir() if path.is_dir())
    for file, before, after in peer.patched:
        text = (unpacked / file).read_text()
        if before not in text:
            raise CannotInstall(f"{package}: no '{before}' in {file} to replace")
        (unpacked / file).write_text(text.replace(before, after))
    _run([*pip, "install", "-c", TORCH, *peer.options, unpacked], peer)


def _run(command: list[object], peer: Peer) -> None:
    done = subprocess.run(
        [str(word) for word in command],
        env=os.environ | dict(peer.variables),
        capture_output=True,
        text=True,
        check=False,
        timeout=INSTALL_SECONDS,
    )
    if done.returncode:
        said = [line.strip() for line in (done.stdout + done.stderr).splitlines() if line.strip()]
        errors = [line for line in said if "error" in line.lower()] or said
        raise CannotInstall(errors[0] if errors else "it said nothing")
