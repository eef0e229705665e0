"""How small each encoding makes a tensor, and how fast it is encoded and decoded.

One thread, normal random numbers in fp32; all encodings in turn, round by round, medians. Speeds
are in bytes of fp32 per second. `clone` copies the tensor: what no encoding can be expected to
beat by much, and how busy the machine is. `error` is the squared error, as a part of the squares of
the numbers themselves.
"""

import json
import statistics
import time
from collections.abc import Callable

import torch
from rich.console import Console
from rich.progress import track
from rich.table import Table

from benchmarks.common.output import argument_parser
from paceline.sync.encodings import Encoding, encoding

GOAL_GIGABYTES_PER_SECOND = {"int8": 1.0, "topk": 1.0}
ENCODINGS: dict[str, Encoding] = {
    "bf16": encoding("bf16", keep=1),
    "int8": encoding("int8", keep=1),
    "int4": encoding("int4", keep=1),
    "int2": encoding("int2", keep=1),
    "sign": encoding("sign", keep=1),
    "topk": encoding("topk", keep=0.01),
    "topk2": encoding("topk2", keep=1 / 64),
}


def _gigabytes_per_second(action: Callable[[], object], size: int) -> float:
    begin = time.perf_counter()
    action()
    return size / 1e9 / (time.perf_counter() - begin)


def measure(values: torch.Tensor, messages: dict[str, torch.Tensor]) -> dict[str, dict[str, float]]:
    """The speed of one go at each."""
    size, elements = values.nbytes, len(values)
    found = {"clone": {"encode": _gigabytes_per_second(values.clone, size)}}
    for name, code in ENCODINGS.items():
        encode = _gigabytes_per_second(lambda code=code: code.encode(values), size)  # type: ignore[misc]
        decode = _gigabytes_per_second(
            lambda code=code, name=name: code.decode(messages[name], elements),  # type: ignore[misc]
            size,
        )
        found[name] = {"encode": encode, "decode": decode}
    return found


def main() -> None:
    parser = argument_parser(__doc__)
    parser.add_argument("--megabytes", type=float, default=16)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    values = torch.randn(int(options.megabytes * 2**20 / 4))
    messages = {name: code.encode(values) for name, code in ENCODINGS.items()}
    measure(values, messages)  # memory that is touched for the first time is not counted
    turns = track(
        range(options.rounds), "encoding", console=Console(stderr=True), disable=options.json
    )
    rounds = [measure(values, messages) for _ in turns]
    figures = {
        name: {
            way: statistics.median(each[name][way] for each in rounds) for way in rounds[0][name]
        }
        for name in rounds[0]
    }
    for name, code in ENCODINGS.items():
        lost = values - code.decode(messages[name], len(values))
        figures[name]["ratio"] = values.nbytes / messages[name].nbytes
        figures[name]["error"] = float(lost.square().sum() / values.square().sum())
    met = {
        f"{name} is encoded at {goal} GB/s or more": figures[name]["encode"] >= goal
        for name, goal in GOAL_GIGABYTES_PER_SECOND.items()
    }
    if options.json:
        print(json.dumps({"figures": figures, "met": met}, indent=2))
        return
    _show(figures, met, options.megabytes, options.rounds)


def _show(
    figures: dict[str, dict[str, float]], met: dict[str, bool], megabytes: float, rounds: int
) -> None:
    title = f"{megabytes:g} MB, one thread, {rounds} interleaved rounds, medians; measured"
    table = Table(title=title)
    table.add_column("encoding")
    columns = {
        "ratio": ("times smaller", ".2f"),
        "encode": ("encode, GB/s", ".2f"),
        "decode": ("decode, GB/s", ".2f"),
        "error": ("error", ".1e"),
    }
    for head, _ in columns.values():
        table.add_column(head, justify="right")
    for name, found in figures.items():
        cells = [
            format(found[key], form) if key in found else "" for key, (_, form) in columns.items()
        ]
        table.add_row(name, *cells)
    Console().print(table)
    for name, reached in met.items():
        Console().print(f"{'met' if reached else 'NOT MET'}: {name}")


if __name__ == "__main__":
    main()
