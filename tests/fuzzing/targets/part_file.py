"""Part files of checkpoints (safetensors), recorded with their size and hash in the manifest."""

import json
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from blake3 import blake3

from checkpoints.saved import Checkpoints
from fuzzing.target import Target
from paceline.checkpoints.manifest import MANIFEST, SEAL, digest_of
from paceline.specs import PacelineError
from paceline.specs.owned_files import write_owned

STEP, FILE = "step-0000000020", "model-00000-000.safetensors"


def _saved(folder: Path) -> Checkpoints:
    saved = Checkpoints(folder / "checkpoints")
    if not (saved.folder / STEP).exists():
        saved.save(20)
    return saved


def consume(data: bytes, folder: Path) -> None:
    """Load a checkpoint."""
    saved = _saved(folder)
    path = saved.folder / STEP / MANIFEST
    manifest = json.loads(path.read_bytes())
    write_owned(saved.folder / STEP / FILE, data)
    record = {"bytes": len(data), "blake3": blake3(data).hexdigest()}
    manifest["page"]["workers"][0]["files"] = [record]
    text = json.dumps(manifest).encode()
    write_owned(path, text)
    write_owned(path.with_name(SEAL), digest_of(text))
    with suppress(PacelineError):
        saved.newest()


def seeds() -> list[bytes]:
    """Return a part file."""
    with TemporaryDirectory() as folder:
        return [(_saved(Path(folder)).folder / STEP / FILE).read_bytes()]


TARGET = Target(seeds, consume)
