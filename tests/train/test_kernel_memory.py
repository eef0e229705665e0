"""What a probe runs to measure a device's kernels fits into the device's memory."""

import pytest
import torch

from paceline.train.probing import kernel_grids
from paceline.train.probing.kernel_calls import Calls
from paceline.train.probing.kernel_grids import ATTENTION, MEMORY_PART, SCORE_BYTES, KernelCase

Sizes = tuple[int, int, int]


@pytest.mark.cpu_only(reason="the kernels are stand-ins")
@pytest.mark.parametrize("gigabytes", [1, 80])
def test_a_fast_device_runs_no_kernel_beyond_its_memory(
    gigabytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernels stand in for those of an accelerator that takes no time at all."""
    ran: list[Sizes] = []

    def calls(sizes: Sizes, *_: object, **__: object) -> Calls:
        ran.append(sizes)
        return Calls(lambda: None, (lambda: None,), 4.0 * sizes[0] * sizes[1] ** 2 * sizes[2])

    monkeypatch.setattr(kernel_grids, "attention_calls", calls)
    case = KernelCase("attention", "bf16", ATTENTION[False], fused=False)
    memory = gigabytes << 30
    found = list(kernel_grids.kernel_grids([case], torch.device("cpu"), memory, 1.0))
    assert len(found) == (gigabytes == 80)
    scores = [heads * tokens**2 * SCORE_BYTES for heads, tokens, _ in ran]
    assert all(each <= MEMORY_PART * memory for each in scores)
