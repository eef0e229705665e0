"""Manifests of checkpoints, with a hash that fits: anybody who can write there can make one."""

from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from checkpoints.saved import Checkpoints
from fuzzing.target import Target
from paceline.checkpoints.folder import Folder
from paceline.checkpoints.manifest import MANIFEST, SEAL, digest_of
from paceline.checkpoints.storage import Damaged
from paceline.checkpoints.verification import saved_at
from paceline.specs import PacelineError
from paceline.specs.owned_files import make_folder, write_owned

STEP = "step-0000000020"


def consume(data: bytes, folder: Path) -> None:
    """Read the manifest of a checkpoint, and its list of files."""
    make_folder(folder / STEP, exist_ok=True)
    write_owned(folder / STEP / MANIFEST, data)
    write_owned(folder / STEP / SEAL, digest_of(data))
    with suppress(Damaged, PacelineError):
        saved_at(Folder(folder), 20).index.share(0, 1)


def seeds() -> list[bytes]:
    """Return the manifest of a checkpoint."""
    with TemporaryDirectory() as folder:
        saved = Checkpoints(Path(folder) / "checkpoints")
        saved.save(20)
        return [(saved.folder / STEP / MANIFEST).read_bytes()]


TARGET = Target(seeds, consume)
