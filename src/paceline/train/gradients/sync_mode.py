"""From a plan's way to agree to the mode that does it between the workers of a run."""

from collections.abc import Callable

import torch

from paceline.comm.dtensor import local_tensor
from paceline.comm.groups import Groups
from paceline.parallel.arranged import Arranged
from paceline.specs import Layout, PacelineError, Sync
from paceline.sync.lane import Lane
from paceline.sync.mode import Bound, Held, Mode
from paceline.sync.modes import mode_of
from paceline.sync.transport import Transport


def agreeing(
    sync: Sync,
    layout: Layout,
    groups: Groups,
    arranged: Arranged,
    optimizer: torch.optim.Optimizer,
    tell: Callable[[int, Sync, str], None],
) -> Mode:
    """What leads the replicas of a model to agree; all workers call this together."""
    _check_shared(sync, arranged)
    if not sync.by_engine:
        # Servers keep their part of the weights in the memory of the host, and talk from there.
        groups.join_replicas(layout, backend="gloo" if sync.mode == "stale" else None)
    transport = Transport(
        groups.replicas,
        groups.device,
        workers=layout.replicas,
        rank=layout.position(groups.placement.rank).replica,
    )
    parameters = [
        Held(stored.name, stored.tensor, local_tensor(stored.tensor).detach())
        for stored in arranged.stored()
        if isinstance(stored.tensor, torch.nn.Parameter)
    ]
    return mode_of(
        Bound(
            sync=sync,
            held=parameters,
            optimizer=optimizer,
            transport=transport,
            lane=Lane(groups.device),
            bucket_bytes=layout.bucket_megabytes << 20,
            tell=tell,
        )
    )


def _check_shared(sync: Sync, arranged: Arranged) -> None:
    """The stages that share a weight must find the same for it, whatever it is sent beside."""
    if arranged.shares_weights and sync.mode == "stale" and sync.staleness != 0:
        raise PacelineError(
            "mode=stale was given together with pipeline, but stages of"
            f" {type(arranged.model).__name__} share a weight, and gradients come to their servers"
            " in different orders",
            fix="use staleness=0, or shards in place of pipeline",
        )
    packed = sync.compress not in ("none", "bf16")
    if arranged.shares_weights and (packed or sync.fragments > 1):
        what = f"compress={sync.compress}" if packed else f"fragments={sync.fragments}"
        kind = type(arranged.model).__name__
        raise PacelineError(
            f"{what} was given together with pipeline, but stages of {kind} share a weight: what"
            " each of them would find for it depends on what it is sent together with",
            fix="leave it out (compress=bf16 is possible), or use shards or tensor in place of"
            " pipeline",
        )
