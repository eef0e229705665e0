"""What a plan means for the whole training: cost, queue, spot nodes and a lost node, in words."""

from typing import TYPE_CHECKING

from paceline.plan.reasons import words
from paceline.specs.units import count, duration, large, money, percent, rate, size

if TYPE_CHECKING:
    from paceline.specs import Answer, TrainingCost
    from paceline.specs.plans.answer import ComputeOrigin, NodeShort
    from paceline.specs.plans.estimate import QueueWait


def outlook_sentences(said: "Answer") -> list[str]:
    """Return sentences on the origin of the compute time, the time in the queue, spot nodes and a
    lost node."""
    found = []
    if said.compute_origin is not None:
        found += _origin(said.compute_origin)
    if said.training is not None and said.training.queue is not None:
        found.append(_queue(said.training, said.training.queue))
    if said.training is not None and said.spot is not None:
        found.append(_spot(said.training, said.spot))
    if said.node_short is not None:
        found.append(_node_short(said, said.node_short))
    return found


def _origin(origin: "ComputeOrigin") -> list[str]:
    """Return how much of the compute time was measured; nothing if nothing was."""
    parts = []
    if origin.blocks:
        parts.append(f"{percent(origin.blocks)} from blocks of the model, timed on the device")
    if origin.kernels:
        parts.append(f"{percent(origin.kernels)} from measured kernels ({origin.source})")
    if not parts:
        return []
    rest = 1.0 - origin.blocks - origin.kernels
    if rest > 0.005:
        parts.append(f"{percent(rest)} from formulas")
    return [f"Compute time: {', '.join(parts)}."]


def _queue(cost: "TrainingCost", queue: "QueueWait") -> str:
    """Return the time in the queue, and the time until the end with it."""
    sizes = f"{queue.fewest_nodes:,} to {queue.most_nodes:,} nodes"
    if queue.fewest_nodes == queue.most_nodes:
        sizes = count(queue.most_nodes, "node")
    each = "The job waits" if queue.jobs == 1 else f"Each of {queue.jobs:,} jobs waits"
    return (
        f"{each} {duration(queue.median_seconds)} in the queue (median of"
        f" {queue.from_jobs:,} past jobs on {sizes}; nine of ten at most"
        f" {duration(queue.high_seconds)}): it ends after"
        f" {duration(cost.seconds.value + queue.all_seconds)}."
    )


def _spot(cost: "TrainingCost", spot: "TrainingCost") -> str:
    """Return what the training takes on spot nodes."""
    price = "" if spot.money is None else f", {_money(spot.money, spot.currency)}"
    times = f" ({spot.money / cost.money:.2f} x)" if spot.money and cost.money else ""
    return (
        f"On spot nodes it would take {duration(spot.seconds.value)}{price}{times},"
        f" {percent(1 - spot.goodput)} of it for interruptions, failures and checkpoints."
    )


def _money(amount: float, currency: str) -> str:
    return f"{money(amount)} {currency or '(currency of the price)'}"


def _node_short(said: "Answer", short: "NodeShort") -> str:
    """Return how the run goes on if a node is lost."""
    lost = f"With {count(short.nodes, 'node')}, after one is lost"
    replaced = "a spare (--spares) or a replacement goes on in its place"
    if short.layout is None or short.step_seconds is None:
        return f"{lost}, no such layout is left: {replaced}."
    what = words(short.layout)
    if not short.fits:
        return f"{lost}, {what} would need {size(short.peak_bytes or 0.0)} on a device: {replaced}."
    idle = short.nodes * said.devices_per_node - short.layout.workers
    waits = f" and leaves {count(idle, 'worker')} idle" if idle else ""
    times = short.step_seconds.value / said.estimate.step_seconds.value
    return (
        f"{lost} and the others have regrouped, a step takes {duration(short.step_seconds.value)}"
        f" ({times:.2f} x) with {what}{waits}."
    )


def training_words(cost: "TrainingCost") -> str:
    """Return the time, the energy and the price of a training."""
    tokens = "" if cost.tokens is None else f" ({large(cost.tokens)} tokens)"
    parts = [
        f"{count(cost.steps, 'step')}{tokens} take {duration(cost.seconds.value)}"
        f" ({duration(cost.seconds.low)} to {duration(cost.seconds.high)}),"
        f" {rate(cost.device_hours)} device-hours"
    ]
    if cost.kilowatt_hours is not None:
        parts.append(f"{rate(cost.kilowatt_hours)} kWh")
    if cost.money is not None:
        parts.append(_money(cost.money, cost.currency))
    if cost.slots is not None:
        parts.append(count(cost.slots, "time slot"))
    lost = 1 - cost.goodput
    if lost > 0.005 and cost.save_every_seconds is not None:
        parts.append(
            f"{percent(lost)} of it for failures and for checkpoints every"
            f" {duration(cost.save_every_seconds)}"
        )
    return ", ".join(parts) + "."
