"""Names under which reports and listeners show a training's own metrics."""

from paceline.specs import Evaluated

LOGGED = "metrics/"
"""Prefix of logged metrics for listeners, which also get the run's figures, such as `loss`."""
VALIDATION = "validation/"
"""Prefix of the metrics of an evaluation, which may have the names of logged ones."""


def evaluated_metrics(event: Evaluated) -> dict[str, float]:
    """Return the loss and the metrics of an evaluation by their full names."""
    found = {"loss": event.loss, **event.metrics}
    return {f"{VALIDATION}{name}": value for name, value in found.items()}
