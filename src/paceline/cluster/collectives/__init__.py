"""What collectives cost: one file each, `seconds(bytes, group)`, in the alpha-beta model.

Where a probe has measured them, `measured` corrects the model. Everything is an array over layouts,
so that a million of them are computed at once.
"""

from collections.abc import Callable

from paceline.cluster.collectives import all_gather, all_reduce, all_to_all, reduce_scatter, send
from paceline.cluster.collectives.group import Array, Group
from paceline.cluster.collectives.measured import corrected

MODELS: dict[str, Callable[[Array, Group], Array]] = {
    "all-reduce": all_reduce.seconds,
    "all-gather": all_gather.seconds,
    "reduce-scatter": reduce_scatter.seconds,
    "send": send.seconds,
}
"""By the name of the operation, as in `Transfer.operation`."""
COLLECTIVES = {name: corrected(name, model) for name, model in MODELS.items()}
"""The same, corrected by what was measured."""
UNPROBED = {"all-to-all": corrected("all-gather", all_to_all.seconds)}
"""Those that no probe measures, corrected by one that passes as many bytes over the same links."""

__all__ = ["COLLECTIVES", "MODELS", "UNPROBED", "Array", "Group"]
