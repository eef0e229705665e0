"""What cannot be the same, to the bit, on any number of workers."""

from paceline.specs.errors import PacelineError
from paceline.specs.plans.layout import Layout


def check_canonical(parts: int | None, compress: str, layout: Layout) -> None:
    """Refuse settings whose results depend on the number of workers, or on chance."""
    if parts is not None and parts < layout.replicas:
        raise PacelineError(
            f"canonical:parts={parts} was given for {layout.replicas} replicas: some would have no"
            " part of a batch",
            fix=f"use at most {parts} replicas; a run that goes on keeps its number of parts",
        )
    divided = [name for name in ("shards", "tensor", "pipeline") if getattr(layout, name) > 1]
    if divided:
        raise PacelineError(
            f"mode=canonical was given together with {divided[0]}={getattr(layout, divided[0])}:"
            " in what order PyTorch adds there depends on how many they are",
            fix="use replicas only, or leave --sync canonical out",
        )
    if compress != "none":
        raise PacelineError(
            f"compress={compress} was given together with mode=canonical: what it loses depends on"
            " which parts are sent together",
            fix="leave compress out, or use allreduce",
        )
    if layout.batch_norm == "synchronised":
        raise PacelineError(
            "batch_norm=synchronised was given together with mode=canonical, in which every part"
            " of a batch has a forward of its own",
            fix="use --batch-norm local",
        )
    if layout.compile:
        raise PacelineError(
            "compile=true was given together with mode=canonical: what is compiled depends on the"
            " shapes that a worker has seen before",
            fix="leave compile out",
        )
