"""A small run with faults as it is left behind, made up, for the checker to be tried on."""

import json
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

STEPS = 6
GENERATIONS = {0: (0, (1, 2, 3, 4), 2), 1: (3, (4, 5), 1), 2: (5, (6,), 2)}
"""Generation -> the step that it began with, the steps that it took, its workers. Step 4 of the
first was taken back."""
SAMPLES, BATCH = 10, 4
PIDS = (100, 101)
WEIGHTS = np.arange(12.0, dtype=np.float32).reshape(4, 3)


def write_evidence(folder: Path) -> None:
    """A run of two workers, one of which was lost after step 3 and came back after 5."""
    run = folder / "runs" / "chaos-1"
    for each in (folder / "chaos" / "steps", folder / "tmp", run / "events", run / "ledger"):
        each.mkdir(parents=True)
    _history(folder / "history.jsonl")
    _ledger(run / "ledger")
    _steps(folder / "chaos" / "steps")
    _events(run / "events" / "n1.jsonl")
    write_checkpoint(folder, WEIGHTS)


def write_lines(path: Path, lines: list[dict[str, Any]]) -> None:
    """A file of JSON lines."""
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def read_lines(path: Path) -> list[dict[str, Any]]:
    """The lines of such a file."""
    return [json.loads(line) for line in path.read_text().splitlines()]


def samples_of(step: int) -> tuple[int, list[int]]:
    """A step's epoch and samples."""
    epoch, number = divmod(step - 1, 3)
    return epoch, list(range(number * BATCH, min(SAMPLES, (number + 1) * BATCH)))


def write_checkpoint(folder: Path, weights: "np.ndarray[Any, Any]") -> None:
    """The last checkpoint, in two pieces."""
    place = folder / "checkpoints" / "chaos-1" / "step-0000000006"
    place.mkdir(parents=True, exist_ok=True)
    for number, start in enumerate((0, 2)):
        rows = np.ascontiguousarray(weights[start : start + 2])
        names = ("model/weight", "optimizer/weight/exp_avg")
        save_file(
            {f"{name}[{start},0]": rows for name in names}, place / f"model-{number}.safetensors"
        )


def _history(path: Path) -> None:
    about = {"seed": 1, "setting": "ddp", "steps": STEPS, "agrees": True, "exact": True}
    about |= {"same_bits": True, "tells": ["nan"]}
    kill = {"number": 0, "kind": "kill", "step": 4, "generation": 0, "rank": 1}
    pause = {"number": 1, "kind": "pause", "step": 6, "generation": 2}
    write_lines(
        path,
        [
            {"what": "run", "at": 0.0, **about},
            {"what": "injected", "at": 4.0, **kill},
            {"what": "generation", "at": 4.5, "generation": 1, "step": 4},
            {"what": "recovered", "at": 5.0, "number": 0, "step": 5, "generation": 1},
            {"what": "injected", "at": 6.0, **pause},
            {"what": "recovered", "at": 7.0, "number": 1, "step": 6, "generation": 2},
            *(
                {"what": "sample", "at": n, "worker": "100-1-n1", "generation": n} | USED
                for n in range(24)
            ),
            {"what": "over", "at": 8.0},
        ],
    )


USED = {"fds": 40, "threads": 9, "rss_bytes": 300 << 20}


def _ledger(folder: Path) -> None:
    for generation, (resumed, steps, workers) in GENERATIONS.items():
        for part in range(workers):
            lines: list[dict[str, Any]] = [
                {"resumed": resumed, "parts": workers, "samples": SAMPLES}
            ]
            for step in steps:
                epoch, ids = samples_of(step)
                lines.append({"step": step, "epoch": epoch, "ids": ids[part::workers]})
            write_lines(folder / f"start-{generation:05d}-part-{part:05d}.jsonl", lines)


def _steps(folder: Path) -> None:
    for part, pid in enumerate(PIDS):
        lines = []
        for generation, (_, steps, workers) in GENERATIONS.items():
            for step in steps:
                # The one that was lost had taken the step that was taken back; its bits differ.
                lost = (generation, step, part) == (0, 4, 1)
                if part < workers and (generation, step, part) != (0, 4, 0):
                    lines.append(_step(step, generation, "lost" if lost else f"h{step}"))
        write_lines(folder / f"{pid}-1-n1.jsonl", [*lines, _step(STEPS, 2, "h6", final=True)])


def _step(step: int, generation: int, digest: str, **more: Any) -> dict[str, Any]:
    about = {"whose": "all", "hash": digest, "at": float(step)}
    return {"step": step, "generation": generation, "part": 0, **about, **more}


def _events(path: Path) -> None:
    def event(kind: str, generation: int, **more: Any) -> dict[str, Any]:
        return {"kind": kind, "generation": generation, **more}

    write_lines(
        path,
        [
            event("started", 0),
            event("steps", 0, first=1, loss=[4.0, 3.0, 2.0]),
            event("saved", 0, step=2),
            event("regrouped", 1, step=3, source="members", steps_again=1, lost=[1]),
            event("steps", 1, first=4, loss=[1.5, 1.2]),
            event("saved", 1, step=4),
            event("regrouped", 2, step=5, source="members", steps_again=0, lost=[]),
            event("steps", 2, first=6, loss=[1.0]),
            event("saved", 2, step=6),
            event("finished", 2),
        ],
    )
