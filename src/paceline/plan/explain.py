"""The computation of one estimate, line by line."""

from dataclasses import dataclass, fields

import numpy as np

from paceline.plan.calibration.calibrate import Fit, Steps
from paceline.plan.cost.coefficients import PRIORS
from paceline.plan.cost.compute import Passes
from paceline.plan.cost.layout_table import Layouts
from paceline.plan.search.best_layout import Best

_MILLI = 1e3


@dataclass(frozen=True)
class Line:
    """One line: the quantity, its computation and the result."""

    what: str
    how: str
    result: str


def explained(best: Best, found: Fit) -> list[Line]:
    """Return the lines from model and layout to the seconds of a step."""
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
            f"{steps.batch[0]:,.0f} samples / ({parts:,.0f} data-parallel ranks x micro-batch"
            f" {samples:,.0f})",
            f"{micro_batches:,.0f}",
        ),
        *_block_lines(steps, block),
        Line(
            "computation",
            f"{micro_batches:,.0f} x ({blocks:,.0f} blocks"
            f"{' + layers before' if at_begin else ''}{' + layers after' if at_end else ''})"
            f"{', and their gradients added up' if micro_batches > 1 else ''}",
            _ms(times.compute[0]),
        ),
    ]
    said = {
        "recompute": f"{micro_batches:,.0f} x {blocks:,.0f} blocks, recomputed",
        "tensor": f"{micro_batches:,.0f} x {blocks:,.0f} x {_inside(layouts)}",
        "transfer": f"{micro_batches:,.0f} x transfers to and from the adjacent stages",
        "bubble": f"the other {layouts.pipeline[0] - 1:,.0f} stages, filled and drained once",
        "data": f"{held / 1e6:,.1f} million parameters of a worker,"
        f" {steps.engine.sync.words}, less what overlaps with computation",
        "optimizer": "measured"
        if steps.profile.optimizer_seconds is not None
        else f"{held / 1e6:,.1f} million parameters, read and written",
        "host": "overhead of every step",
        "jitter": f"the slowest of {layouts.devices[0]:,.0f} workers, sigma sqrt(2 ln n)",
    }
    lines += [
        Line(name, how, _ms(getattr(times, name)[0]))
        for name, how in said.items()
        if getattr(times, name)[0] > 0
    ]
    lines.append(Line("a step", "sum", _ms(times.total[0])))
    if not np.isnan(known := found.measured(best.found.steps.take(one))[0]):
        lines.append(Line("measured", "in runs of this layout, as planned", _ms(known)))
    if (simulated := best.estimate.simulated_seconds) is not None:
        lines.append(Line("simulated", "event by event, with stragglers", _ms(simulated)))
    return lines


def _inside(layouts: Layouts) -> str:
    """Return what a block communicates."""
    context, expert = (float(np.ravel(each)[0]) for each in (layouts.context, layouts.expert))
    said = [f"all-reduces over {layouts.tensor[0]:,.0f} tensor-parallel slices"]
    if context > 1:
        said.append(f"keys and values around {context:,.0f} context-parallel workers")
    if expert > 1:
        said.append(f"tokens to experts on {expert:,.0f} workers and back")
    return ", ".join(said if layouts.tensor[0] > 1 or len(said) == 1 else said[1:])


def _block_lines(steps: Steps, block: Passes) -> list[Line]:
    cost = steps.profile.block
    how = (
        f"measured on {steps.profile.measured_on}"
        if cost.timing is not None
        else f"{cost.forward_flops / 1e9:,.2f} GFLOP per sample at"
        f" {steps.cluster.device.peak(steps.precision) / 1e12:,.3g} TFLOP/s peak, memory"
        " traffic, kernel launches"
    )
    return [
        Line("a block, forward", how, _ms(block.forward[0])),
        Line("a block, backward", "twice the matrix products", _ms(block.backward[0])),
    ]


def numbers_used(found: Fit) -> list[Line]:
    """Return the planner's coefficients with their origin and uncertainty."""
    spreads = np.sqrt(np.diag(found.covariance))
    return [
        Line(
            each.name,
            f"{found.origins[place]}: {PRIORS[each.name].why}",
            f"{float(getattr(found.numbers, each.name)):.3g} (x/ {np.exp(spreads[place]):.2f})",
        )
        for place, each in enumerate(fields(found.numbers))
    ]


def _ms(seconds: float) -> str:
    return f"{_MILLI * float(seconds):,.2f} ms"
