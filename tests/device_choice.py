"""The kind of device that `pytest --device KIND` chooses for ranks and launched runs."""

import os
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

KINDS = ("cpu", "sim", "cuda", "xpu")
SIM_DEVICES = 8
"""Simulated devices of a launched run: as many as any test has workers."""

ON_ANY_DEVICE = (
    "layouts",
    "trainings",
    "sync",
    "checkpoints/test_resharding.py",
    "train/test_equal_training.py",
    "train/test_logged_metrics.py",
    "train/test_non_finite.py",
    "train/test_phases.py",
    "train/test_regroup.py",
)
"""Folders and files of tests that train: layouts, synchronization modes, checkpoints, lost
workers."""

chosen = "cpu"
"""Set once, by the option."""


def why_skipped(item: pytest.Item) -> str | None:
    """Why a test does not run on the chosen kind of device."""
    if chosen == "cpu":
        return None
    place = item.path.relative_to(Path(__file__).parent)
    if not any(place.is_relative_to(each) for each in ON_ANY_DEVICE):
        return "trains on no device, or chooses its own"
    if marker := item.get_closest_marker("cpu_only"):
        return f"only on the CPU: {marker.kwargs['reason']}"
    return None


def of_command(python_path: str | None) -> dict[str, str]:
    """The variables that make a launched command use the chosen kind; `python_path` is a test's
    own."""
    if chosen == "cpu":
        return {}
    variables = {"PACELINE_DEVICE_KIND": chosen}
    if chosen == "sim":
        from outside import environment

        paths = [environment("simulated")["PYTHONPATH"], *([python_path] if python_path else [])]
        variables["PYTHONPATH"] = os.pathsep.join(paths)
        variables["PACELINE_SIM_DEVICES"] = str(SIM_DEVICES)
    return variables


def use_in_rank(kind: str, workers: int) -> None:
    """Make this process, a new rank, use a kind of device."""
    if kind == "cpu":
        return
    os.environ |= {"PACELINE_DEVICE_KIND": kind}
    if kind == "sim":
        from paceline.comm.device_kind import DEVICES

        os.environ["PACELINE_SIM_DEVICES"] = str(workers)
        DEVICES.outside["sim"] = EntryPoint("sim", "paceline_simulated.kind:DEVICE", DEVICES.group)
