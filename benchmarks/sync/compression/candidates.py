"""What is compared, what is asked of it, and the learning rates that a sweep has found."""

from dataclasses import dataclass

WIDTH, LAYERS = 1024, 4
"""Of the model whose bytes are counted: 4.2 million parameters. With 1 million, what Gloo and TCP
add to a message of 30 kB is 6 % of it."""
RATES = (4e-3, 8e-3, 1.6e-2)
"""Every candidate's sweep."""
TUNING_SEED = 1000
"""None that is measured."""


@dataclass(frozen=True)
class Candidate:
    """A way to send gradients."""

    name: str
    sync: str
    """What `paceline run --sync` would be given."""
    least_ratio: float | None = None
    """Of bytes at the interface, with two workers."""
    most_points: float | None = None
    """That accuracy may lose, or loss in percent."""
    warmup_part: float = 0.0
    """Of a training's steps, the first that send whole gradients."""
    other_order: bool = False
    """Whether the same first weights see the samples in another order: what chance does."""


WARMUP = 0.05
"""While weights change fast, what was not sent is soon out of date."""
UNCOMPRESSED = Candidate("none", "allreduce")
BY_CHANCE = Candidate("none, other order", "allreduce", other_order=True)
COMPRESSED = (
    Candidate("bf16", "allreduce:compress=bf16"),
    Candidate("int8", "allreduce:compress=int8", least_ratio=3.9, most_points=0.1),
    Candidate("int4", "allreduce:compress=int4"),
    Candidate("int2", "allreduce:compress=int2"),
    Candidate(
        "sign", "allreduce:compress=sign", least_ratio=30, most_points=0.5, warmup_part=WARMUP
    ),
    Candidate(
        "topk",
        "allreduce:compress=topk,keep=0.01",
        least_ratio=95,
        most_points=0.3,
        warmup_part=WARMUP,
    ),
    Candidate("topk2", "allreduce:compress=topk2,keep=0.015625", warmup_part=WARMUP),
    # One in 64 is 141.2 times smaller as a message, and less at the interface.
    Candidate(
        "topk2-66", "allreduce:compress=topk2,keep=0.01515", least_ratio=140, warmup_part=WARMUP
    ),
    Candidate("powersgd", "allreduce:compress=powersgd"),
)
BY_NAME = {each.name: each for each in (UNCOMPRESSED, BY_CHANCE, *COMPRESSED)}
JUDGED = ("int8", "sign", "topk", "topk2")
"""Those whose learning is compared where nothing else is asked for."""

TUNED: dict[str, dict[str, float]] = {
    "digits": {"none": 4e-3},
    "signals": {"none": 1.6e-2, "int8": 1.6e-2, "sign": 8e-3, "topk": 1.6e-2, "topk2": 1.6e-2},
    "text": {"none": 1.6e-2, "sign": 8e-3},
}
"""The rates of AdamW that `--tune` found, by task and candidate: all of them on signals. On digits
only the uncompressed sweep was finished; on text two rates were compared, with a seed of those that
are measured."""
USUAL_RATE = 8e-3


def rate_of(task: str, candidate: Candidate) -> float:
    """For a candidate that was not in the sweep, the uncompressed one's."""
    found = TUNED[task]
    return found.get(candidate.name, found.get(UNCOMPRESSED.name, USUAL_RATE))
