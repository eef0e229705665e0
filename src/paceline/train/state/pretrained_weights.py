"""Load pretrained weights into this worker's part of a model, whatever its layout."""

import sys
from pathlib import Path

import torch

from paceline.checkpoints.tensor_extent import Piece
from paceline.checkpoints.weight_files import WeightFiles
from paceline.comm.dtensor import local_tensor
from paceline.parallel.parallel_model import ParallelModel
from paceline.specs import PacelineError
from paceline.specs.units import first_few
from paceline.user.pretrained import Pretrained


@torch.no_grad()
def load_pretrained(given: Pretrained, model: ParallelModel, *, says: bool) -> None:
    """Fill this worker's tensors; refuse names that do not match, unless `partial`.

    `says`: print which weights a partial load leaves as they are.
    """
    found = WeightFiles.find(Path(given.path))
    in_file = _by_model_name(given, found)
    first_names = model.names()
    # A tied weight may be stored under any of its names.
    source = {first_names[name]: in_file[name] for name in first_names if name in in_file}
    missing = [name for name in dict.fromkeys(first_names.values()) if name not in source]
    unexpected = [name for name in in_file if name not in first_names]
    if (missing or unexpected) and not given.partial:
        _refuse(given, missing, unexpected)
    if not source:
        raise PacelineError(
            f"{given.path} has no weight of this model: it has {first_few(in_file)}",
            fix=f'map its names: Pretrained(…, rename={{"{next(iter(in_file), "")}": "…"}})',
        )
    if given.partial and says:
        print(
            f"pretrained: {len(source)} weights loaded from {given.path}; not in it:"
            f" {first_few(missing) or 'none'}; not in the model: {first_few(unexpected) or 'none'}",
            file=sys.stderr,
        )
    pieces: list[Piece] = []
    for stored in model.stored():
        if stored.name in source:
            local = local_tensor(stored.tensor).detach()
            pieces += stored.extent.pieces(source[stored.name], local)
    found.fill(pieces)


def _by_model_name(given: Pretrained, found: WeightFiles) -> dict[str, str]:
    """Return the name in the file of each renamed weight."""
    names: dict[str, str] = {}
    for name in found.files:
        renamed = given.renamed(name)
        if renamed in names:
            raise PacelineError(
                f"Pretrained(rename=…) gives {names[renamed]} and {name} of {given.path} one name:"
                f" {renamed}",
                fix="rename them differently",
            )
        names[renamed] = name
    return names


def _refuse(given: Pretrained, missing: list[str], unexpected: list[str]) -> None:
    lacks = f"lacks {first_few(missing)} of the model" if missing else ""
    has = f"has {first_few(unexpected)}, which the model does not have" if unexpected else ""
    raise PacelineError(
        f"{given.path} {' and '.join(filter(None, (lacks, has)))}",
        fix='map names with Pretrained(…, rename={"old prefix": "new prefix"}), or load what fits'
        " with Pretrained(…, partial=True)",
    )
