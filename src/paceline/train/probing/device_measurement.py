"""Measurement of one device: matrix multiplication, memory bandwidth, memory size, name."""

import subprocess
import time
from pathlib import Path
from statistics import median

import torch

from paceline.comm.device_kind import device_kind
from paceline.specs import Placement
from paceline.specs.measurements.cluster import MatmulRate, Precision
from paceline.specs.measurements.probe import ProbedWorker
from paceline.train.probing.timer import call_seconds, once

SIZES = (128, 256, 512, 1024, 2048, 4096, 8192)
LONGEST_MATMUL_SECONDS = 0.2
BUDGET_SECONDS = 0.08
"""Time budget for one size in one precision, and for the copy."""
COMPARED_SIZE, COMPARED_CALLS = 512, 50
"""Matrix size and number of calls of the product that compares workers."""
LAUNCHING_SECONDS, LAUNCHES = 0.4, 100
CPU_COPY_BYTES, ACCELERATOR_COPY_BYTES = 1 << 26, 1 << 29
_POWERCAP = Path("/sys/class/powercap")


def measured(placement: Placement, device: torch.device) -> ProbedWorker:
    """Measure this worker's device while the other workers measure theirs."""
    on_cpu = device.type == "cpu"
    rates = [*_matmuls("fp32", torch.float32, device), *_matmuls("bf16", torch.bfloat16, device)]
    if not on_cpu:
        rates += _matmuls("fp16", torch.float16, device)
    copied = CPU_COPY_BYTES if on_cpu else ACCELERATOR_COPY_BYTES
    source = torch.ones(copied, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    seconds = median(call_seconds(lambda: target.copy_(source), device, BUDGET_SECONDS))
    return ProbedWorker(
        node=placement.node,
        device=device_kind().title(device),
        kind="cpu" if on_cpu else "accelerator",
        units=device_kind().units(device),
        launch_seconds=_launch_seconds(device),
        memory_bytes=device_kind().memory_bytes(device, placement),
        memory_bytes_per_second=2 * copied / seconds,
        matmuls=tuple(rates),
        best_flops=best_flops(device),
        watts=_watts(placement, device),
    )


def _launch_seconds(device: torch.device) -> float:
    """Return the host's mean time for a small operation; a mean, since workers may share a core."""
    small = torch.ones(16, device=device)
    launches = 0
    begin = time.perf_counter()
    while (took := time.perf_counter() - begin) < LAUNCHING_SECONDS:
        for _ in range(LAUNCHES):
            small.add(1.0)
        launches += LAUNCHES
    device_kind().synchronize(device)
    return took / launches


def best_flops(device: torch.device) -> float:
    """Return the best rate of a product that every device can compute.

    A node is slow only if no call is fast.
    """
    left = torch.rand(COMPARED_SIZE, COMPARED_SIZE, device=device)
    seconds = min(once(lambda: left @ left, device) for _ in range(COMPARED_CALLS))
    return 2.0 * COMPARED_SIZE**3 / seconds


def _matmuls(name: Precision, precision: torch.dtype, device: torch.device) -> list[MatmulRate]:
    """Measure square matrix products of growing size, until one takes too long."""
    found = []
    for size in SIZES:
        seconds = median(_matmul_seconds(size, precision, device))
        found.append(
            MatmulRate(size=size, precision=name, flops_per_second=2.0 * size**3 / seconds)
        )
        if 8.0 * seconds > LONGEST_MATMUL_SECONDS:
            break
    return found


def _matmul_seconds(size: int, precision: torch.dtype, device: torch.device) -> list[float]:
    left = torch.rand(size, size, device=device).to(precision)
    right = torch.rand(size, size, device=device).to(precision)
    result = torch.empty_like(left)
    return call_seconds(lambda: torch.matmul(left, right, out=result), device, BUDGET_SECONDS)


def _watts(placement: Placement, device: torch.device) -> float | None:
    """Return the power limit of an NVIDIA device, or this worker's part of the CPU packages'."""
    try:
        if device.type == "cuda":
            asked = ("nvidia-smi", f"--id={device.index}", "--query-gpu=power.limit")
            said = subprocess.run(
                [*asked, "--format=csv,noheader,nounits"],
                capture_output=True,
                text=True,
                timeout=10,
                check=True,
            ).stdout
            return float(said)
        limits = _POWERCAP.glob("intel-rapl:?/constraint_0_power_limit_uw")
        microwatts = sum(int(each.read_text()) for each in limits)
    except (OSError, ValueError, subprocess.SubprocessError):
        return None
    return microwatts / 1e6 / placement.local_workers or None
