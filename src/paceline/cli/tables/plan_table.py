"""The printed plan: scaling curve, alternatives, step breakdown and suggestions."""

from typing import TYPE_CHECKING

from paceline.cli.tables.outlook_words import outlook_sentences, training_words
from paceline.cli.tables.table import console, table

_GOALS = {
    "fastest": "no other number of nodes has a shorter step",
    "cheapest": "no other number of nodes takes fewer device-hours",
    "greenest": "no other number of nodes takes less energy",
}
"""Why a number of nodes was chosen, by the goal."""
_GOALS_TO_LOSS = {
    "fastest": "no other batch and number of nodes reaches the loss sooner",
    "cheapest": "no other batch and number of nodes reaches the loss in fewer device-hours",
    "greenest": "no other batch and number of nodes reaches the loss with less energy",
}
"""The same where batches were compared."""

if TYPE_CHECKING:
    from rich.table import Table

    from paceline.plan.calibration.calibrate import Fit
    from paceline.plan.search.best_layout import Best
    from paceline.specs import Amount, Answer, Layout, SyncSettings


def show(said: "Answer") -> None:
    """Print a plan: its tables, then its findings."""
    from paceline.cli.tables.batches_table import (
        batches_table,
        larger_sentence,
        sentences,
        stages_sentence,
        stages_table,
    )
    from paceline.specs.units import count

    out = console()
    for line in _headline(said):
        out.print(line, markup=False)
    million = said.parameters / 1e6
    size = f"{million:,.1f} million" if million >= 0.1 else f"{said.parameters:,}"
    out.print(
        f"{said.model}: {size} parameters, batch {said.batch:,}, on"
        f" nodes of {count(said.devices_per_node, 'device')} ({said.device});"
        f" {said.scored:,} layouts considered",
        markup=False,
    )
    if said.engine_settings:
        out.print(
            f"For {said.engine}, not for Paceline's own engine. Its predictions were compared with"
            f" {said.engine_score}.",
            markup=False,
        )
    if said.batches is not None:
        out.print(batches_table(said.batches, said.batch))
    out.print(_curve(said))
    if said.stages:
        out.print(stages_table(said))
    out.print(_others(said))
    if said.sync_reason:
        out.print(said.sync_reason, markup=False)
    about_batch = (*sentences(said), *larger_sentence(said), *stages_sentence(said))
    for sentence in (*about_batch, *_sentences(said)):
        out.print(sentence, markup=False)
    for remark in said.remarks:
        out.print(remark, style="yellow", markup=False)
    if said.engine_settings:
        out.print(f"Settings of {said.engine}:\n{said.engine_settings}", markup=False)


def _headline(said: "Answer") -> list[str]:
    """Return the answer in three lines: use this, it takes that, because."""
    from paceline.plan.reasons import bound
    from paceline.specs.units import count

    estimate = said.estimate
    devices = count(said.nodes * said.devices_per_node, "device")
    step, interval = _interval(estimate.step_seconds)
    whole = "" if said.training is None else f" {training_words(said.training)}"
    return [
        f"Use {count(said.nodes, 'node')} ({devices}): {_words(estimate.layout, estimate.sync)}.",
        f"It takes {step} per step ({interval}), {_throughput(said)}.{whole}",
        f"Because {_reason(said)}; a step is {bound(estimate)}.",
    ]


def _throughput(said: "Answer") -> str:
    """Return what is trained per second, money and energy, in tokens where samples have them."""
    from paceline.specs.units import large, percent, rate

    parts = [f"{rate(said.samples_per_second)} samples/s"]
    if said.tokens_per_second is not None:
        parts.append(f"{large(said.tokens_per_second)} tokens/s")
    if said.mfu is not None:
        parts.append(f"MFU {percent(said.mfu)}")
    for samples, tokens, unit in (
        (said.samples_per_money, said.tokens_per_money, said.currency or "unit of money"),
        (said.samples_per_kwh, said.tokens_per_kwh, "kWh"),
    ):
        if tokens is not None:
            parts.append(f"{large(tokens)} tokens per {unit}")
        elif samples is not None:
            parts.append(f"{large(samples)} samples per {unit}")
    return ", ".join(parts)


def _reason(said: "Answer") -> str:
    """Return why this number of nodes was chosen."""
    if said.batches is not None and said.goal != "knee":
        return _GOALS_TO_LOSS[said.goal]
    if len(said.curve) == 1:
        return "no other number of nodes was possible or asked for"
    if said.goal != "knee":
        return _GOALS[said.goal]
    if said.wasted_beyond is None:
        return "each node of those considered adds at least half of what the first add"
    return "each further node would add less than half of what the first add"


def show_arithmetic(best: "Best", found: "Fit") -> None:
    """Print how the estimate is computed, and the coefficients with their origin."""
    from paceline.plan.explain import explained, numbers_used

    out = console()
    for title, lines in (
        ("The step of the chosen layout", explained(best, found)),
        ("Coefficients", numbers_used(found)),
    ):
        shown = table(title, "how", "result", words={title, "how"})
        for line in lines:
            shown.add_row(line.what, line.how, line.result)
        out.print(shown)


def _curve(said: "Answer") -> "Table":
    from paceline.specs.units import percent, rate

    columns = ("", "nodes", "workers", "layout", "step", "90% interval", "samples/s", "efficiency")
    batch = ("batch",) if said.batches else ()
    shown = table(*columns, *batch, words={"layout"})
    for point in said.curve:
        here = point.nodes == said.nodes
        shown.add_row(
            "->" if here else "",
            f"{point.nodes:,}",
            f"{point.devices:,}",
            _words(point.layout, point.sync),
            *_interval(point.step_seconds),
            rate(point.samples_per_second),
            percent(point.efficiency),
            *([f"{point.batch:,}"] if batch else []),
            style="bold" if here else None,
        )
    return shown


def _others(said: "Answer") -> "Table":
    from paceline.specs.units import count, duration, size

    chosen = said.estimate
    where = f"on {count(said.nodes, 'node')}"
    words_of = {where, "layout", "why not"}
    shown = table(where, "layout", "step", "memory", "why not", words=words_of)
    shown.add_row(
        "chosen",
        _words(chosen.layout, chosen.sync),
        duration(chosen.step_seconds.value),
        size(round(chosen.peak_bytes.value)),
        "",
        style="bold",
    )
    for other in said.alternatives:
        shown.add_row(
            other.what,
            _words(other.layout, other.sync),
            "-" if other.step_seconds is None else duration(other.step_seconds),
            size(round(other.peak_bytes)),
            other.why,
        )
    return shown


def _words(layout: "Layout", sync: "SyncSettings") -> str:
    """Return a layout in words, with its synchronization mode unless it is plain all-reduce."""
    from paceline.plan.reasons import words

    # With spaces, so that a narrow column can break it.
    return words(layout) + ("" if sync.by_engine else f", {sync.short().replace(',', ', ')}")


def _sentences(said: "Answer") -> list[str]:
    from paceline.specs.units import count, size

    peak = said.estimate.peak_bytes
    helps = ", ".join(f"{each.change} ({each.faster:.2f} x)" for each in said.helps)
    sentences = [
        f"Memory of the fullest device: {size(peak.value)} (90% interval: {size(peak.low)} to"
        f" {size(peak.high)}); a layout fits if the upper end does.",
        f"Would help: {helps}."
        if helps
        else "Doubling network, links, memory or batch would not help much.",
    ]
    if said.wasted_beyond == 1:
        sentences.append("One node is enough: a second one adds less than half of the first.")
    elif said.wasted_beyond is not None:
        sentences.append(
            f"Beyond {said.wasted_beyond:,} nodes, each further node adds less than half of the"
            " throughput of one of the first."
        )
    if said.too_few is not None:
        where = count(said.too_few, "node")
        sentences.append(f"On {where}, no layout fits into memory and divides the batch.")
    sentences += outlook_sentences(said)
    if said.estimate.step_seconds.origin == "assumed":
        sentences.append(
            "These figures come from a catalog and from assumptions; `paceline probe` and"
            " --calibrate"
            " RUN make them more certain."
        )
    return sentences


def _interval(amount: "Amount") -> tuple[str, str]:
    from paceline.specs.units import duration

    return duration(amount.value), f"{duration(amount.low)} to {duration(amount.high)}"
