"""From the name of a mode in a plan to what does it."""

from paceline.sync.allreduce import MeanGradients
from paceline.sync.auto import Auto
from paceline.sync.canonical import Canonical
from paceline.sync.easgd import ElasticAveraging
from paceline.sync.gossip import Gossip
from paceline.sync.local import LocalSteps
from paceline.sync.mode import Bound, Mode
from paceline.sync.stale import StaleWeights


class ByEngine(Mode):
    """The mean gradient, every step, as DistributedDataParallel and FSDP2 take it in backward."""

    replicas_differ = False


MODES: dict[str, type[Mode]] = {
    "allreduce": MeanGradients,
    "canonical": Canonical,
    "local": LocalSteps,
    "diloco": LocalSteps,
    "sparseloco": LocalSteps,
    "gossip": Gossip,
    "easgd": ElasticAveraging,
    "stale": StaleWeights,
    "auto": Auto,
}


def mode_of(bound: Bound) -> Mode:
    """What agrees as a plan says."""
    alone = bound.transport.workers == 1
    if bound.sync.by_engine or (alone and bound.sync.mode in ("allreduce", "auto")):
        return ByEngine(bound)
    return MODES[bound.sync.mode](bound)
