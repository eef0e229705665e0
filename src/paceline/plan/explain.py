"""The arithmetic of one estimate, line by line."""

from dataclasses import dataclass, fields

import numpy as np

from paceline.plan.calibration.calibrate import Fit, Steps
from paceline.plan.cost.coefficients import GUESSES
from paceline.plan.cost.compute import Passes
from paceline.plan.search.best_layout import Best
from paceline.plan.sync_choice import sync_words

_MILLI = 1e3


@dataclass(frozen=True)
class Line:
    """One line: what, how it follows from numbers, and what it comes to."""

    what: str
    how: str
    result: str


def explained(best: Best, found: Fit) -> list[Line]:
    """From the model and the layout to the seconds of a step."""
    one = np.array([0])
    steps = best.found.steps
    layouts = steps.layouts.take(one)
    model = found.model(steps)
    times = model.times(layouts, steps.batch[one])
    passes = [model.compute.passes(each, layouts) for each in steps.profile.layers]
    before, block, after = passes
    blocks, at_begin, at_end = (
        float(each[0]) for each in model.slowest(layouts, before.all, block.all, after.all)
    )
    parts, samples = float(layouts.data_workers[0]), float(layouts.micro_batch[0])
    micro_batches = float(layouts.micro_batches(steps.batch[one])[0])
    held = float(model.held_parameters(layouts)[0])
    lines = [
        Line(
            "micro-batches",
            f"{steps.batch[0]:,.0f} samples / ({parts:,.0f} parts x {samples:,.0f} at a time)",
            f"{micro_batches:,.0f}",
        ),
        *_block_lines(steps, block),
        Line(
            "computing",
            f"{micro_batches:,.0f} x ({blocks:,.0f} blocks"
            f"{' + what is before' if at_begin else ''}{' + what is after' if at_end else ''})",
            _ms(times.compute[0]),
        ),
    ]
    said = {
        "recompute": f"{micro_batches:,.0f} x {blocks:,.0f} blocks, computed again",
        "tensor": f"{micro_batches:,.0f} x {blocks:,.0f} x sums over"
        f" {layouts.tensor[0]:,.0f} slices",
        "transfer": f"{micro_batches:,.0f} x exchanges with the stages beside it",
        "bubble": f"the other {layouts.pipeline[0] - 1:,.0f} stages, filled and emptied once",
        "data": f"{held / 1e6:,.1f} million parameters of a worker,"
        f" {sync_words(steps.engine.sync)}, less what computing hides",
        "optimizer": "measured"
        if steps.profile.optimizer_seconds is not None
        else f"{held / 1e6:,.1f} million parameters, read and written",
        "host": "what every step has to do",
        "jitter": f"the slowest of {layouts.devices[0]:,.0f} workers, sigma sqrt(2 ln n)",
    }
    lines += [
        Line(name, how, _ms(getattr(times, name)[0]))
        for name, how in said.items()
        if getattr(times, name)[0] > 0
    ]
    lines.append(Line("a step", "together", _ms(times.total[0])))
    if (simulated := best.estimate.simulated_seconds) is not None:
        lines.append(Line("simulated", "event by event, with stragglers", _ms(simulated)))
    return lines


def _block_lines(steps: Steps, block: Passes) -> list[Line]:
    cost = steps.profile.block
    how = (
        f"measured on {steps.profile.measured_on}"
        if cost.timing is not None
        else f"{cost.forward_flops / 1e9:,.2f} GFLOP a sample at"
        f" {steps.cluster.device.peak(steps.precision) / 1e12:,.3g} TFLOP/s peak, bytes, launches"
    )
    return [
        Line("a block, forward", how, _ms(block.forward[0])),
        Line("a block, backward", "twice the products", _ms(block.backward[0])),
    ]


def numbers_used(found: Fit) -> list[Line]:
    """The planner's numbers, where they come from and how sure they are."""
    spreads = np.sqrt(np.diag(found.covariance))
    return [
        Line(
            each.name,
            f"{found.origins[place]}: {GUESSES[each.name].why}",
            f"{float(getattr(found.numbers, each.name)):.3g} (x/ {np.exp(spreads[place]):.2f})",
        )
        for place, each in enumerate(fields(found.numbers))
    ]


def _ms(seconds: float) -> str:
    return f"{_MILLI * float(seconds):,.2f} ms"
