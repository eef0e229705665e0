"""Construction of the hook that the trainer calls, from the plan's synchronization mode."""

from collections.abc import Callable

import torch

from paceline.comm.dtensor import local_tensor
from paceline.comm.groups import Groups
from paceline.parallel.parallel_model import ParallelModel
from paceline.specs import Layout, PacelineError, SyncSettings
from paceline.sync.buckets import LocalParameter
from paceline.sync.hook import EngineHook, Hook, HookContext
from paceline.sync.lane import Lane
from paceline.sync.mode import SyncMode
from paceline.sync.transport import Transport


def sync_hook(
    sync: SyncSettings,
    layout: Layout,
    groups: Groups,
    parallel_model: ParallelModel,
    optimizer: torch.optim.Optimizer,
    report: Callable[[int, SyncSettings, str], None],
) -> Hook:
    """Return this worker's hook of a mode. All workers call this together."""
    if parallel_model.shares_weights:
        sync.check_shared_weights(type(parallel_model.model).__name__)
    if not sync.by_engine:
        # Servers keep their part of the weights in host memory and communicate from there.
        groups.join_replicas(layout, on_host=sync.has_servers)
    transport = Transport(
        groups.replicas,
        groups.device,
        workers=layout.replicas,
        rank=layout.position(groups.placement.rank).replica,
    )
    context = HookContext(
        parameters=[
            LocalParameter(stored.name, stored.tensor, local_tensor(stored.tensor).detach())
            for stored in parallel_model.stored()
            if isinstance(stored.tensor, torch.nn.Parameter)
        ],
        optimizer=optimizer,
        transport=transport,
        lane=Lane(groups.device, waits_on_host=sync.has_servers),
        bucket_bytes=layout.bucket_megabytes << 20,
        report=report,
    )
    if sync.by_engine:
        return EngineHook(sync, context)
    if not isinstance(sync, SyncMode):
        raise PacelineError(
            f"the synchronization mode {sync.mode} has no hook, so it can be planned, not trained",
            fix="derive it from paceline.sync.mode.SyncMode",
        )
    decided = context.for_optimizer(sync)
    if decided != sync:
        why = f"by the training's optimizer, {type(optimizer).__name__}"
        report(0, decided, why)
        if groups.placement.rank == 0 and groups.placement.roster is None:
            print(f"--sync {decided.short()}: settings chosen {why}", flush=True)
    return decided.hook(context)
