"""What each mode sends, keeps and asks for in samples; for the planner, and so without torch.

`traffic` states what the code of the modes does. Sizes of messages stand here a second time, since
those in `encodings` come with torch; a test runs every mode and holds the two together.
"""

import math
from collections.abc import Sequence

from paceline.specs.measurements.dry_run import Transfer
from paceline.specs.plans.sync import LOCAL_STEPS, Sync
from paceline.sync.canonical_costs import canonical_traffic, rows_kept
from paceline.sync.traffic import NUMBER_BYTES, Traffic, copied, transfer

FIRST_BUCKET_BYTES = 1 << 20
CHUNK = 4096
"""Numbers among which `topk` looks for the largest."""
PIECE = 1 << 17
"""Numbers that are encoded at a time; about as many operations for them as copies take as long."""
ASSUMED_WIDTH = 1024
"""Of the square matrices that `powersgd` is taken to work on where nobody gives their shapes."""


def traffic(
    sync: Sync,
    workers: int,
    parameters: int,
    *,
    bucket_bytes: int = 25 << 20,
    shapes: Sequence[tuple[int, ...]] = (),
) -> Traffic:
    """What `workers` replicas exchange that hold `parameters` numbers each; `shapes` of them are
    asked for by `powersgd` only."""
    if sync.mode == "stale":
        return _with_servers(sync, workers, parameters)
    if sync.mode == "gossip":
        peers = min(2 if sync.graph == "ring" else 1, workers - 1)
        sent = transfer("send", 2, NUMBER_BYTES * parameters, peers)
        return Traffic((sent,), workers, 1 / sync.every, sync.overlap, copied(parameters, 5.0))
    if sync.mode == "easgd":
        summed = transfer("all-reduce", workers, NUMBER_BYTES * parameters)
        # It begins before forward and ends after the update: a step hides it.
        return Traffic((summed,), workers, 1 / sync.every, 1, copied(parameters, 6.0))
    if sync.mode == "canonical":
        buckets = _buckets(parameters, bucket_bytes)
        return canonical_traffic(sync.parts or workers, workers, parameters, buckets)
    coding = _coding(sync, workers)
    if sync.mode in LOCAL_STEPS:
        each = -(-parameters // sync.fragments)
        return Traffic(
            _averaged(sync, workers, each, 1, shapes),
            workers,
            sync.fragments / sync.every,
            sync.overlap,
            copied(each, coding + (11.0 if sync.outer_momentum else 8.0)),
            launches=coding * -(-each // PIECE),
        )
    buckets = _buckets(parameters, bucket_bytes) if sync.compress != "none" else 1
    averaged = _averaged(sync, workers, -(-parameters // buckets), buckets, shapes)
    copies, pieces = copied(parameters, coding), buckets - 1 + -(-parameters // PIECE)
    return Traffic(averaged, workers, 1.0, 0, copies, launches=coding * pieces)


def _buckets(parameters: int, bucket_bytes: int) -> int:
    rest = max(0, NUMBER_BYTES * parameters - FIRST_BUCKET_BYTES)
    return 1 + -(-rest // bucket_bytes)


def message_bytes(sync: Sync, elements: int) -> int:
    """Of so many numbers, as an encoding sends them."""
    if sync.compress in ("topk", "topk2"):
        whole, left = divmod(elements, CHUNK)
        kept = whole * _kept(CHUNK, sync.keep) + (_kept(left, sync.keep) if left else 0)
        places = kept + -(-kept // 2)
        if sync.compress == "topk":
            return 2 * kept + places
        return 4 * -(-elements // CHUNK) + 2 * -(-kept // 8) + places
    scale_bytes, block, bits = _CODES[sync.compress]
    of_numbers = 2 * -(-elements // 8) if bits == 2 else -(-elements * bits // 8)
    return scale_bytes * -(-elements // block) + of_numbers


_CODES = {
    "bf16": (0, 1, 16),
    "int8": (4, 1024, 8),
    "int4": (2, 256, 4),
    "int2": (4, 256, 2),
    "sign": (4, 1024, 1),
}
"""Bytes of the scales of a block, numbers in a block, bits of a number."""


def kept_bytes(sync: Sync, workers: int) -> float:
    """For each parameter that a worker holds, what agreeing keeps on it beside the training."""
    if sync.mode == "canonical":
        return NUMBER_BYTES * rows_kept(sync.parts or workers, workers)
    rest = NUMBER_BYTES if sync.compress != "none" and sync.feedback > 0 else 0
    if workers == 1 or sync.mode == "allreduce":
        return rest if workers > 1 else 0
    if sync.mode in LOCAL_STEPS:  # where all agreed, what was launched, the change
        return rest + NUMBER_BYTES * (3 + (sync.outer_momentum > 0))
    if sync.mode == "easgd":  # the centre, how far this worker is pulled, and all on average
        return 3 * NUMBER_BYTES
    if sync.mode == "gossip":  # without overlap, gradients are gone before it begins
        return NUMBER_BYTES * (2 + traffic(sync, workers, 1).transfers[0].count) * sync.overlap
    # A gradient, its message and the answer; on a server, weights and a message from each other.
    return NUMBER_BYTES * (3 + workers / min(sync.servers, workers))


EXTRA_SAMPLES = {
    "local": 0.03,
    "gossip": 0.03,
    "easgd": 0.1,
    "stale": 0.02,
    "int4": 0.03,
    "int2": 0.3,
    "sign": 1.0,
    "topk": 1.0,
    "topk2": 1.0,
    "powersgd": 0.3,
}
"""How many more samples, in parts of all, reach the loss of a plain all-reduce: ASSUMED of every
model but one.

Those of compression are added, the others multiplied by what `extra_samples` says. Behind them is
one small model: two workers, a byte-level GPT of 0.14 M parameters, AdamW at one learning rate, 320
steps, two seeds. There int8 with what it lost carried over took as many steps to a loss as the
plain sum, int4 1.03 times, int2 and PowerSGD of rank 4 about 1.3 times, the largest 1 % and signs
more than twice, since Adam takes what is carried over for a noisy gradient. Steps of their own took
1.18 (8 at a time), 1.22 (16) and 1.25 (32) times as many; with an outer momentum of 0.5, 1.1 to
1.18; 0.03 gives 1.14, 1.18 and 1.23."""


def extra_samples(sync: Sync, workers: int) -> float:
    """How many times as many samples as a plain all-reduce needs a mode takes to the same loss.

    Assumed, never measured: see `EXTRA_SAMPLES`. Slowly more with the steps between two agreements
    and with the replicas that drift apart meanwhile.
    """
    if workers == 1 or sync.mode == "auto":
        return 1.0
    drift = 1.0 + math.log2(workers) / 2
    extra = EXTRA_SAMPLES.get(sync.compress, 0.0)
    if sync.mode in LOCAL_STEPS:
        extra += EXTRA_SAMPLES["local"] * math.log2(sync.every + sync.overlap) * drift
    elif sync.mode == "gossip":
        extra += EXTRA_SAMPLES["gossip"] * math.log2(1 + sync.every + sync.overlap) * drift
    elif sync.mode == "easgd":
        extra += EXTRA_SAMPLES["easgd"] * drift
    elif sync.mode == "stale":
        # Without a bound, a gradient is as old as there are others whose gradients come meanwhile.
        age = workers - 1 if sync.staleness is None else min(sync.staleness, workers - 1)
        extra += EXTRA_SAMPLES["stale"] * age
    return 1.0 + extra


def _with_servers(sync: Sync, workers: int, parameters: int) -> Traffic:
    """Gradients from all workers, then weights to them, over the link of a server."""
    servers = min(sync.servers, workers)
    part = NUMBER_BYTES * -(-parameters // servers)
    crossing = 1.0
    if sync.staleness != 0 and workers > 1:
        # Some are answered while others still send. A server is a worker of the other servers, too;
        # and no worker is answered before it has sent all.
        over_its_link, in_turn = workers + servers - 2, 2 * min(servers, workers - 1)
        crossing = max(over_its_link, in_turn) / (2 * (workers - 1))
    return Traffic(
        (
            transfer("receive", 2, part, workers - 1),
            transfer("send", 2, part, workers - 1),
        ),
        busiest=servers,
        per_step=1.0,
        hidden_steps=0,
        device_bytes=copied(parameters, 6.0 + 2.0 * workers / servers),
        crossing=crossing,
    )


def _averaged(
    sync: Sync, workers: int, elements: int, count: int, shapes: Sequence[tuple[int, ...]]
) -> tuple[Transfer, ...]:
    """Of a mean over the workers, as `averaging.py` takes it."""
    if sync.compress == "none":
        return (transfer("all-reduce", workers, NUMBER_BYTES * elements, count),)
    if sync.compress == "bf16":
        return (transfer("all-reduce", workers, 2 * elements, count),)
    if sync.compress == "powersgd":
        factors = _factor_elements(sync.rank, elements, shapes)
        return tuple(transfer("all-reduce", workers, NUMBER_BYTES * n, count) for n in factors)
    if sync.compress in ("topk", "topk2"):
        gathered = workers * message_bytes(sync, elements)
        return (transfer("all-gather", workers, gathered, count),)
    parts = workers * message_bytes(sync, -(-elements // workers))
    return (
        transfer("all-to-all", workers, parts, count),
        transfer("all-gather", workers, parts, count),
    )


def _factor_elements(
    rank: int, elements: int, shapes: Sequence[tuple[int, ...]]
) -> tuple[int, int]:
    """Numbers of the left factors with what has none, and of the right ones."""
    if not shapes:
        factors = min(elements, round(rank * elements / ASSUMED_WIDTH))
        return factors, factors
    left = right = 0
    for shape in shapes:
        rows, columns = shape[0], math.prod(shape[1:])
        if len(shape) > 1 and rank * (rows + columns) < rows * columns:
            left, right = left + rank * rows, right + rank * columns
        else:
            left += rows * columns
    part = elements / sum(math.prod(shape) for shape in shapes)
    return round(part * left), round(part * right)


_ENCODE = {"bf16": 3, "int8": 6, "int4": 7, "int2": 25, "sign": 9, "topk": 18, "topk2": 25}
_DECODE = {"bf16": 4, "int8": 3, "int4": 7, "int2": 11, "sign": 4, "topk": 4, "topk2": 6}
"""In times of a copy of the same numbers: measured on one core by `benchmarks.sync.encodings`, and
assumed on all other devices."""
_FACTORS = 30.0
"""The same for `powersgd`: assumed."""


def _coding(sync: Sync, workers: int) -> float:
    """Encoding what is sent, decoding what comes and what was lost, in copies of all of it."""
    if sync.compress == "none":
        return 0.0
    if sync.compress == "powersgd":
        return _FACTORS
    encode, decode = _ENCODE[sync.compress], _DECODE[sync.compress]
    if sync.compress == "bf16":
        return encode + decode
    if sync.compress in ("topk", "topk2"):  # all that come are as long as the whole
        return encode + (1 + workers) * decode
    # All parts once for their sums, once as means, and once for what was lost.
    return (1 + 1 / workers) * encode + (3 + 1 / workers) * decode


def _kept(elements: int, keep: float) -> int:
    return max(1, round(keep * elements))
