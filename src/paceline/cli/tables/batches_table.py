"""The printed comparison of batches: what each takes to the same loss."""

from typing import TYPE_CHECKING

from paceline.cli.tables.table import table
from paceline.learning.rules import changes_in_words
from paceline.specs.units import bounded, count, duration, rate

if TYPE_CHECKING:
    from rich.table import Table

    from paceline.specs import Answer, BatchChoice, CriticalBatch


def batches_table(choice: "BatchChoice", batch: int) -> "Table":
    """Return a row per batch, with the number of nodes that suits the goal best."""
    has_price = all(each.cost.money is not None for each in choice.options)
    columns = ["", "batch", "nodes", "step", "steps", "samples", "time", "device-hours"]
    shown = table(*columns, *(["cost"] if has_price else []), words=())
    for each in choice.options:
        here = each.batch == batch
        shown.add_row(
            "->" if here else "",
            f"{each.batch:,}",
            f"{each.nodes:,}",
            duration(each.step_seconds),
            f"{each.cost.steps:,}",
            f"× {each.samples_times:.2f}",
            duration(each.cost.seconds.value),
            rate(each.cost.device_hours),
            *([f"{each.cost.money:,.2f}"] if has_price else []),
            style="bold" if here else None,
        )
    return shown


def stages_table(said: "Answer") -> "Table":
    """Return a row per stage of a batch that grows, with the number of nodes that pays in it."""
    there = f"step on {count(said.nodes, 'node')}"
    shown = table("stage: batch", "nodes", "workers", "step", there, words=())
    for each in said.stages:
        planned = each.planned_step_seconds
        shown.add_row(
            f"{each.batch:,}",
            f"{each.nodes:,}",
            f"{each.workers:,}",
            duration(each.step_seconds),
            "too small a batch" if planned is None else duration(planned),
        )
    return shown


def stages_sentence(said: "Answer") -> list[str]:
    """Return what to do if the first stages are worth fewer nodes than the plan has."""
    fewer = [each for each in said.stages if each.nodes < said.nodes]
    if not fewer:
        return []
    largest = max(fewer, key=lambda each: each.batch)
    return [
        f"Up to a batch of {largest.batch:,}, fewer nodes than {said.nodes:,} suit the goal better."
        " A run keeps its workers in all stages: start it on fewer nodes, and resume it on more"
        " (`paceline resume RUN --nodes N`); the samples stay the same."
    ]


def sentences(said: "Answer") -> list[str]:
    """Return how certain the batch is, beyond which one nodes only cost, and what to write."""
    choice = said.batches
    if choice is None:
        return []
    critical = choice.critical
    known = _critical(critical)
    found = [f"Batch {said.batch:,}, for a critical batch of {known}: {_same(choice)}."]
    if choice.wasted_beyond is not None and said.wasted_beyond is not None:
        found.append(
            f"Beyond a batch of {choice.wasted_beyond:,} on {count(said.wasted_beyond, 'node')},"
            " more nodes mostly cost."
        )
    if said.batch != choice.own:
        adam, sgd = (changes_in_words(each) for each in (choice.rules.adam, choice.rules.sgd))
        found.append(
            f"Settings tuned at a batch of {choice.own:,} become, with Adam and its kin, {adam};"
            f" with SGD, {sgd}."
        )
        found.append(
            f"To train so, write Training(batch={said.batch}, tuned_at={choice.own},"
            f" critical_batch={critical.at_hand:.0f}): it sets the learning rate and"
            " the steps. `paceline study --kind batch` shows whether it learns as well."
        )
    return found


def larger_sentence(said: "Answer") -> list[str]:
    """Return the price of twice the batch."""
    larger, cost = said.larger_batch, said.training
    if larger is None or cost is None:
        return []
    steps = larger.cost.steps / cost.steps
    seconds = larger.cost.seconds.value / cost.seconds.value
    unit = "samples" if said.sequence is None else "tokens"
    price = "device-hours"
    spent = larger.cost.device_hours / cost.device_hours
    if cost.money and larger.cost.money is not None:
        price, spent = "cost", larger.cost.money / cost.money
    return [
        f"Twice the batch, {larger.batch:,}, on the same nodes would take {steps:.2f} × the steps,"
        f" {larger.samples_times:.2f} × the {unit}, {seconds:.2f} × the time and {spent:.2f} × the"
        f" {price} to the same loss."
    ]


def _critical(critical: "CriticalBatch") -> str:
    if critical.value is not None and critical.low == critical.high:
        return f"{critical.value:,.0f}"
    return bounded(critical.value, critical.low, critical.high)


def _same(choice: "BatchChoice") -> str:
    low = "" if choice.same_from is None else f" from {choice.same_from:,.0f}"
    high = "" if choice.same_to is None else f" to {choice.same_to:,.0f}"
    if not low and not high:
        return "the choice would be the same with one 64 times smaller or larger"
    return f"the choice is the same{low}{high}"
