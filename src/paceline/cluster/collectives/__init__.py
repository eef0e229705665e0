"""Predicted seconds of collectives: cost models, corrected by what a probe measured."""

from collections.abc import Callable

from paceline.cluster.collectives import cost_models
from paceline.cluster.collectives.corrections import corrected
from paceline.cluster.collectives.cost_models import Array, Group

MODELS: dict[str, Callable[[Array, Group], Array]] = {
    "all-reduce": cost_models.all_reduce,
    "all-gather": cost_models.all_gather,
    "reduce-scatter": cost_models.reduce_scatter,
    "send": cost_models.send,
}
"""Cost models by operation name, as in `Transfer.operation`."""
COLLECTIVES = {name: corrected(name, model) for name, model in MODELS.items()}
"""Cost models corrected by measurements."""
UNPROBED = {"all-to-all": corrected("all-gather", cost_models.all_to_all)}
"""Unmeasured collectives, corrected by one that sends as many bytes over the same links."""

__all__ = ["COLLECTIVES", "MODELS", "UNPROBED", "Array", "Group"]
