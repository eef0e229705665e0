"""Runs the body of a test in a process that has simulated devices.

A process that has them has no other accelerator, for good: pytest's own must not.
"""

import importlib
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any, Protocol, cast

from paceline.specs import Layout, Run
from paceline_simulated import core
from ranks import run_ranks


class _Test(Protocol):
    body: Callable[..., None]

    def __call__(self, tmp_path: Path) -> None: ...


def on_sim(devices: int = 1) -> Callable[[Callable[[], None]], _Test]:
    """Make a test of a function that runs where there are this many simulated devices."""

    def decorate(body: Callable[[], None]) -> _Test:
        def test(tmp_path: Path) -> None:
            run_ranks(_run_body, 1, tmp_path, body.__module__, body.__name__, devices)

        test.__doc__ = body.__doc__
        made = cast(Any, test)
        made.body = body
        return cast(_Test, made)

    return decorate


def _run_body(module: str, name: str, devices: int) -> None:
    os.environ["PACELINE_SIM_DEVICES"] = str(devices)
    importlib.import_module("paceline_simulated.device")
    getattr(importlib.import_module(module), name).body()


def run_sim_ranks(
    function: Callable[..., Any],
    workers: int,
    folder: Path,
    *arguments: Any,
    limit_bytes: int | None = None,
    seconds: float = 60.0,
    layout: Layout | None = None,
    run: Run | None = None,
) -> list[Any]:
    """As `run_ranks`, with a simulated device and `simccl` on each rank.

    `limit_bytes` is the memory of each device.
    """
    given = (function, workers, limit_bytes, arguments)
    return run_ranks(_on_device, workers, folder, *given, seconds=seconds, layout=layout, run=run)


def _on_device(
    function: Callable[..., Any], devices: int, limit_bytes: int | None, arguments: tuple[Any, ...]
) -> Any:
    from paceline.cluster.visible_devices import KIND_VARIABLE
    from paceline.comm.device_kind import DEVICES

    os.environ |= {"PACELINE_SIM_DEVICES": str(devices), KIND_VARIABLE: "sim"}
    DEVICES.outside["sim"] = EntryPoint("sim", "paceline_simulated.kind:DEVICE", DEVICES.group)
    if limit_bytes is not None:
        core.set_limit(limit_bytes)
    return function(*arguments)


@contextmanager
def held(device: int = 0) -> Iterator[None]:
    """Hold the current stream of a device at a kernel that does not end before this block."""
    release = threading.Event()
    core.enqueue(device, lambda: release.wait(30))
    try:
        yield
    finally:
        release.set()
