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
"""By the name of the operation, as in `Transfer.operation`."""
COLLECTIVES = {name: corrected(name, model) for name, model in MODELS.items()}
"""The same, corrected by measurements."""
UNPROBED = {"all-to-all": corrected("all-gather", cost_models.all_to_all)}
"""Collectives that no probe measures, corrected by one with as many bytes over the same links."""

__all__ = ["COLLECTIVES", "MODELS", "UNPROBED", "Array", "Group"]
