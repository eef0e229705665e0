"""Compressed gradients: bytes at the interface, and what is learned with them.

Wire: on 2, 4 and 8 nodes of a testbed (namespaces, veth interfaces at 1 Gbit/s, TCP, Gloo), a
worker each, steps of Paceline's trainer on 4.2 million parameters. Bytes are what the kernel
counted for the node's interface: headers, acknowledgements, Gloo's own messages, the trainer's
reports and Slurm's are in them. A sender hands its card up to 64 KiB under one header, and the
kernel counts that; with 2 workers all is counted again in frames of an Ethernet, a header each.

Quality: two workers here, AdamW, a rate that falls to zero, five seeds. The same first weights and
the same samples for all of a seed; a learning rate for each from the same sweep (`--tune`, with a
seed that is not measured). Beside them what chance does: no compression, another order of samples.

- signals: curves of ten shapes, generated; 20,000 are held out. One of them is 0.005 points.
- text: a byte-level GPT on the source of the standard library; 32,768 bytes are held out.
- digits (where asked for): scikit-learn's images; each seed holds out another fifth, so that five
  seeds are judged on all 1,797. One of them is 0.06 points of the mean.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from benchmarks.common.output import argument_parser
from benchmarks.sync.compression.candidates import (
    BY_CHANCE,
    BY_NAME,
    COMPRESSED,
    JUDGED,
    RATES,
    TUNED,
    TUNING_SEED,
    UNCOMPRESSED,
    WIDTH,
    Candidate,
    rate_of,
)
from benchmarks.sync.compression.results import Learnt, Results, Sent
from benchmarks.sync.compression.running import Wanted, here, testbed
from benchmarks.sync.compression.shown import show, show_sweep

LINK = "1gbit"
WARM_UP_STEPS = 2
WORKERS = (2, 4, 8)
TASKS = ("signals", "text")
_QUICK_STEPS = 40


def count(workers: int, candidates: Sequence[Candidate], steps: int) -> list[Sent]:
    """What each sends, on a testbed of so many nodes; uncompressed first, in the same job."""
    names = [UNCOMPRESSED, *candidates]
    wanted: list[Wanted] = [
        {
            "what": "wire",
            "sync": each.sync,
            "width": WIDTH,
            "warmup": WARM_UP_STEPS,
            "steps": steps,
        }
        for each in names
    ]
    sent = []
    with testbed(workers, LINK) as box:
        for frames in (False, True) if workers == 2 else (False,):
            if frames:
                box.cut_into_frames()
            words = f"{workers} nodes" + (", in frames" if frames else "")
            for each, found in zip(names, box.run(wanted, words), strict=True):
                sent.append(Sent(each.name, workers, frames, tuple(found["bytes_per_step"])))
    return sent


def learn(
    tasks: Sequence[str],
    runs: Sequence[tuple[Candidate, int, float | None]],
    steps: int | None = None,
) -> list[Learnt]:
    """Every run, a candidate with a seed and perhaps a rate, on every task."""
    every = [
        (task, candidate, seed, rate or rate_of(task, candidate))
        for task in tasks
        for candidate, seed, rate in runs
    ]
    wanted: list[Wanted] = [
        {
            "what": "quality",
            "task": task,
            "sync": candidate.sync,
            "rate": rate,
            "seed": seed,
            "warmup_part": candidate.warmup_part,
            "other_order": candidate.other_order,
            "steps": steps,
        }
        for task, candidate, seed, rate in every
    ]
    found = here(2, wanted, "learning")
    return [
        Learnt(task, candidate.name, seed, rate, **said)
        for (task, candidate, seed, rate), said in zip(every, found, strict=True)
    ]


def parsed() -> argparse.Namespace:
    """The command line."""
    parser = argument_parser(__doc__)
    names = [each.name for each in COMPRESSED]
    parser.add_argument("--wire", action="store_true", help="only bytes")
    parser.add_argument("--quality", action="store_true", help="only learning")
    parser.add_argument("--tune", action="store_true", help="only sweep the learning rates")
    parser.add_argument("--compressors", nargs="+", choices=names, metavar="NAME")
    parser.add_argument("--workers", nargs="+", type=int, default=WORKERS, metavar="N")
    parser.add_argument("--tasks", nargs="+", choices=tuple(TUNED), default=TASKS, metavar="TASK")
    parser.add_argument("--steps", type=int, default=20, help="that are counted")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--quick", action="store_true", help="2 workers, one seed, few steps")
    return parser.parse_args()


def main() -> None:
    """Measure and show; the exit says whether all that is asked for was reached."""
    given = parsed()
    quick = given.quick
    judged = [BY_NAME[name] for name in given.compressors or JUDGED]
    results = Results()
    if given.tune:
        swept = [(each, TUNING_SEED, rate) for each in (UNCOMPRESSED, *judged) for rate in RATES]
        results.learnt += learn(given.tasks, swept)
        show_sweep(results)
        return
    if given.wire or not given.quality:
        counted = [BY_NAME[name] for name in given.compressors] if given.compressors else COMPRESSED
        for workers in (2,) if quick else given.workers:
            results.sent += count(workers, counted, 3 if quick else given.steps)
    if given.quality or not given.wire:
        candidates = (UNCOMPRESSED, BY_CHANCE, *judged)
        seeds = range(1, 2 if quick else given.seeds + 1)
        runs = [(each, seed, None) for seed in seeds for each in candidates]
        results.learnt += learn(given.tasks, runs, _QUICK_STEPS if quick else None)
    if given.json:
        given.json.write_text(json.dumps(asdict(results), indent=2) + "\n")
    show(results)
    sys.exit(1 if results.misses() and not quick else 0)


if __name__ == "__main__":
    main()
