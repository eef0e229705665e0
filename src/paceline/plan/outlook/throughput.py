"""What a plan trains per second, money and energy, and how that compares with rules of thumb."""

from collections.abc import Mapping
from contextlib import suppress

from paceline.plan.search.best_layout import Best
from paceline.plan.training_cost import TooManyFailures, training_cost
from paceline.specs import Cluster
from paceline.specs.units import large, rate

CHINCHILLA_TOKENS_PER_PARAMETER = 20
"""Tokens per parameter that reach the lowest loss for the computation, in dense language models:
about 20 in table 3 of Hoffmann et al., Training compute-optimal large language models, 2022."""


def throughput(best: Best, cluster: Cluster, sequence: int | None) -> Mapping[str, float | None]:
    """Return the fields of `Answer` on what is trained per second, money and energy.

    `cluster`: the nodes that were chosen; `sequence`: tokens per sample, if known.
    """
    batch = best.estimate.batch
    found: dict[str, float | None] = {
        "tokens_per_second": None if sequence is None else sequence * best.samples_per_second
    }
    with suppress(TooManyFailures):
        step = training_cost(best, cluster, 1)
        for name, amount in (("money", step.money), ("kwh", step.kilowatt_hours)):
            samples = batch / amount if amount else None
            found[f"samples_per_{name}"] = samples
            found[f"tokens_per_{name}"] = samples and sequence and samples * sequence
    return found


def chinchilla_remark(tokens: int, parameters: int) -> str:
    """Return how many tokens Chinchilla's rule has for a model, beside those it trains on."""
    usual = CHINCHILLA_TOKENS_PER_PARAMETER * parameters
    return (
        f"Chinchilla's rule, {CHINCHILLA_TOKENS_PER_PARAMETER} tokens per parameter of a dense"
        f" model (Hoffmann et al. 2022), is {large(usual)} tokens here; {large(tokens)} tokens are"
        f" {rate(tokens / usual)} times that"
    )
