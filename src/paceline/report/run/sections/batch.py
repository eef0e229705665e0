"""Batch and learning rate: the measured gradient noise, and how large a batch it would pay for."""

import math
from bisect import bisect_right
from itertools import accumulate, pairwise
from types import ModuleType

from paceline.learning.critical_batch import critical_batch, samples_times
from paceline.learning.noise_scale import NoiseScale, NoiseSums
from paceline.learning.rules import in_words
from paceline.report.drawing.brief import Content
from paceline.report.drawing.chart import BLUE, HEIGHT_PIXELS, VERMILION, Chart, finish
from paceline.report.drawing.tables import Table
from paceline.report.reading.run_state import RunState
from paceline.report.run.section import ReportedRun, Section
from paceline.specs import BatchRule, Grew, Noise, RuleApplied
from paceline.specs.base import Spec

TITLE = "Batch and learning rate"
WINDOWS = 8
FEWEST_STEPS = 10
"""Measured steps that a window needs."""
LARGEST = 1e30
GROWN = 1.5
"""Factor from which a batch counts as grown, rather than as the last one of an epoch."""


class Window(Spec):
    """The noise scale over a part of the run; all windows have equally many measured samples."""

    step: int
    """Its last measured step."""
    samples: int
    """Samples trained on until then."""
    measured_steps: int
    batch: float
    """Mean over the measured steps, in samples or in the unit of `weight=`."""
    scale: NoiseScale


class AppliedRule(Spec):
    """How an optimizer's settings were changed for the batch."""

    phase: str
    optimizer: str
    rule: BatchRule
    rates: list[float]
    """Learning rates that were used, of each group of parameters, before any schedule."""
    steps: int
    tuned_steps: int


class Grown(Spec):
    """A growth of the batch."""

    step: int
    """The last step with the smaller batch."""
    samples: int
    batch: int


class BatchFigures(Spec):
    """The gradient noise of a run, the batch that it used, and what was changed for it."""

    batch: float
    """Mean over the measured steps, in samples or in the unit of `weight=`."""
    windows: tuple[Window, ...] = ()
    """Empty if too few steps were measured."""
    critical: float | None = None
    """The critical batch that the noise scales suggest; None where the signal is not resolved."""
    at_least: float = 0.0
    """Its lower bound: the mean of the windows' lower bounds."""
    weighted: bool = False
    """Whether the coordinates of gradients were weighted as the optimizer does, such as Adam."""
    of_changes: bool = False
    """Whether changes of weights between rounds of local steps stood in for gradients."""
    rules: tuple[AppliedRule, ...] = ()
    """What was changed for the batch, with `tuned_at`, for each phase and stage of the batch."""
    grew: tuple[Grown, ...] = ()
    """Growths of the batch by the noise, in the order of their steps."""

    @property
    def last_batch(self) -> float:
        """The batch at the end of the run."""
        return self.windows[-1].batch

    @property
    def grows(self) -> bool:
        """Whether the batch has grown, and not only the last one of an epoch was smaller."""
        return self.last_batch >= GROWN * self.windows[0].batch


class _Batch(Section[BatchFigures | None]):
    order = 14
    key = "gradient_noise"

    def figures(self, run: ReportedRun) -> BatchFigures | None:
        return batch_figures(run.state)

    def content(self, run: ReportedRun, figures: BatchFigures | None) -> Content | None:
        if figures is None:
            return None

        def charts(altair: ModuleType) -> list[Chart]:
            return [_chart(figures, altair)]

        words = [_rule_in_words(each) for each in figures.rules]
        if not figures.windows:
            return Content(title=TITLE, words=words)
        return Content(
            title=TITLE,
            words=[_sentence(figures), *words],
            tables=[_table(figures)] if figures.critical else [],
            charts=charts,
            rows=[("Gradient noise scale", _in_words(figures.windows[-1].scale))],
        )


SECTION = _Batch()


def batch_figures(state: RunState, *, weighted: bool = True) -> BatchFigures | None:
    """Return noise scales and rules of a run; None if it measured too few and changed nothing.

    `weighted`: with the optimizer's weights of coordinates, if most steps have measured these.
    """
    plain, with_weights = _measured(state, weighted=False), _measured(state, weighted=True)
    weighted = weighted and 2 * len(with_weights) > len(plain)
    rows = with_weights if weighted else plain
    rules = _rules(state)
    count = min(WINDOWS, len(rows) // FEWEST_STEPS)
    if not count:
        return BatchFigures(batch=rules[0].rule.batch, rules=rules) if rules else None
    edges = [round(len(rows) * number / count) for number in range(count + 1)]
    until = [0, *accumulate(state.samples)]
    windows = []
    for begin, end in pairwise(edges):
        part = rows[begin:end]
        step = part[-1][0]
        scale = NoiseSums.of(row[1:] for row in part).scale()
        trained = until[bisect_right(state.step, step)]
        mean = math.fsum(row[1] for row in part) / len(part)
        window = Window(
            step=step, samples=trained, measured_steps=len(part), batch=mean, scale=scale
        )
        windows.append(window)
    batch = math.fsum(row[1] for row in rows) / len(rows)
    found = [(each.measured_steps, each.scale.value) for each in windows]
    known = [(steps, value) for steps, value in found if value is not None]
    lows = [(each.measured_steps, each.scale.low) for each in windows]
    return BatchFigures(
        batch=batch,
        windows=tuple(windows),
        critical=critical_batch(known, batch) if len(known) == len(found) else None,
        at_least=critical_batch(lows, batch),
        weighted=weighted,
        of_changes=_of_changes(state),
        rules=rules,
        grew=_grown(state),
    )


def _grown(state: RunState) -> tuple[Grown, ...]:
    """Return the growths of the batch; of a repeated one, the later."""
    found = {
        event.step: Grown(step=event.step, samples=event.samples, batch=event.batch)
        for event in state.learning
        if isinstance(event, Grew)
    }
    return tuple(found[step] for step in sorted(found))


def _rules(state: RunState) -> tuple[AppliedRule, ...]:
    """Return the rules of the last start."""
    applied = [each for each in state.learning if isinstance(each, RuleApplied)]
    found = {(each.phase, each.rule.batch): each for each in applied}
    fields = set(AppliedRule.model_fields)
    return tuple(AppliedRule(**each.model_dump(include=fields)) for each in found.values())


def _rule_in_words(applied: AppliedRule) -> str:
    rule, phase = applied.rule, f"Phase {applied.phase}, " if applied.phase else ""
    changed = in_words(rule, applied.steps, applied.tuned_steps)
    used = ", ".join(f"{each:.3g}" for each in applied.rates)
    tuned = ", ".join(f"{each / rule.rate_times:.3g}" for each in applied.rates)
    return f"{phase}{applied.optimizer}: {changed}. Learning rate {used} instead of {tuned}."


def _of_changes(state: RunState) -> bool:
    """Whether a run has measured no gradients, but changes of weights."""
    return all(each.of_changes for each in state.learning if isinstance(each, Noise))


def _measured(state: RunState, *, weighted: bool) -> list[tuple[int, float, float, float]]:
    """Return step, samples, variance and signal in step order; of a repeated step, the later."""
    found, of_changes = {}, _of_changes(state)
    for event in state.learning:
        if not isinstance(event, Noise) or event.of_changes != of_changes:  # in other units
            continue
        noise = (
            (event.weighted_variance, event.weighted_signal)
            if weighted
            else (event.variance, event.signal)
        )
        for step, samples, variance, signal in zip(
            event.steps, event.samples, *noise, strict=False
        ):
            # A damaged file can have any numbers.
            if variance is None or signal is None or not 0 < samples < LARGEST:
                continue
            if abs(variance) < LARGEST and abs(signal) < LARGEST:
                found[step] = (step, samples, variance, signal)
    return [found[step] for step in sorted(found)]


def _in_words(scale: NoiseScale) -> str:
    if scale.value is None or scale.high is None:
        return f"at least {_samples(scale.low)} samples"
    return f"{_samples(scale.value)} samples ({_samples(scale.low)}–{_samples(scale.high)})"


def _samples(number: float) -> str:
    """Round to two digits: more are not known."""
    digits = max(0, math.floor(math.log10(number)) - 1) if number >= 1 else 0
    return f"{round(number, -digits):,.0f}"


def _sentence(figures: BatchFigures) -> str:
    last = figures.windows[-1]
    weighted = " (coordinates weighted as by the optimizer)" if figures.weighted else ""
    if figures.of_changes:
        weighted = " (of the replicas' changes between rounds)"
    measured = (
        f"At the end, the gradient noise scale{weighted} was {_in_words(last.scale)}, and the batch"
        f" {_samples(figures.last_batch)}."
    )
    if figures.grew:
        grew = [f"to {each.batch:,} after {each.samples:,} samples" for each in figures.grew]
        measured += f" By the noise, the batch grew {', '.join(grew)}."
    elif figures.grows:
        measured += f" It grew from {_samples(figures.windows[0].batch)}."
    if figures.critical is None:
        return (
            f"{measured} The signal is too weak against the noise to say more: the critical batch"
            f" is at least {_samples(figures.at_least)}."
        )
    return (
        f"{measured} Over the run, this suggests a critical batch of {_samples(figures.critical)}:"
        " up to there, a larger batch with a suitable learning rate saves steps; beyond it, mostly"
        " samples are spent. The suggestion is computed, not tested; curvature can shift it by a"
        " factor of two or more."
    )


def _table(figures: BatchFigures) -> Table:
    assert figures.critical is not None
    rows = []
    for times in (1, 2, 4, 8, 16):
        batch = times * figures.last_batch
        samples = samples_times(batch, figures.last_batch, figures.critical)
        rows.append((_samples(batch), f"× {samples:.2f}", f"÷ {times / samples:.2f}"))
    columns = ("Batch", "Samples to the same loss", "Steps")
    caption = (
        "Computed from the critical batch (McCandlish et al., 2018), beside the run's last batch."
    )
    return Table("What a larger batch would take", columns, rows, (), caption)


def _chart(figures: BatchFigures, altair: ModuleType) -> Chart:
    rows = [
        {
            "samples": each.samples,
            "value": each.scale.value,
            "low": max(each.scale.low, 1e-3),
            "high": each.scale.high,
            "shown": each.scale.high or each.scale.value,
            "batch": each.batch,
        }
        for each in figures.windows
    ]
    base = altair.Chart(altair.Data(values=rows)).encode(
        x=altair.X("samples:Q", title="Samples").scale(nice=False).axis(format="~s")
    )
    size = altair.Scale(type="log")
    line = base.mark_line(point=True, color=BLUE, strokeWidth=2).encode(
        y=altair.Y("value:Q", title="Gradient noise scale (samples)", scale=size)
    )
    range_ = base.mark_rule(color=BLUE).encode(y=altair.Y("low:Q", scale=size), y2="shown:Q")
    height = altair.Y("batch:Q", scale=size)
    dashed = {"color": VERMILION, "strokeDash": [4, 4]}
    used = (
        base.mark_line(interpolate="step", **dashed).encode(y=height)
        if figures.grows
        else altair.Chart(altair.Data(values=[{"batch": figures.batch}]))
        .mark_rule(**dashed)
        .encode(y=height)
    )
    chart = altair.layer(range_, line, used)
    label = "Line chart of the gradient noise scale over the samples, with the batch as a line"
    caption = (
        "Dashed: the batch. Bars: 90 % intervals; one that ends at its point has no upper end."
    )
    spec = finish(chart.properties(width="container", height=HEIGHT_PIXELS), label)
    return Chart("noise-scale", "Gradient noise scale", caption, label, spec)
