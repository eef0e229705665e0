"""The comparisons before a training hold where the GPU computes in TF32.

Before, they ran in the precision of the training: a sliced model was refused since its slices have
shapes for which other kernels are chosen.
"""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only

import paceline
from layouts.models import WIDTH, training_of
from paceline.parallel.check.check import check
from paceline.parallel.step.full_precision import full_precision
from paceline.specs import Layout
from ranks import RankFailed, run_ranks

PRODUCTS = (torch.ops.aten.mm.default, torch.ops.aten.addmm.default, torch.ops.aten.bmm.default)


class StandInForTF32(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """A stand-in for a GPU's products: rounds their inputs to TF32's 10 bits, if that is allowed,
    but only for some shapes, as kernels for others are not of the same kind."""

    rounded = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        allowed = torch.backends.cuda.matmul.fp32_precision == "tf32"
        if func in PRODUCTS and allowed and all(x.shape[-1] % WIDTH == 0 for x in args[-2:]):
            args = tree_map_only(torch.Tensor, _to_ten_bits, args)
            self.rounded += 1
        return func(*args, **kwargs or {})


def _to_ten_bits(values: torch.Tensor) -> torch.Tensor:
    return ((values.contiguous().view(torch.int32) + 0x1000) & ~0x1FFF).view(torch.float32)


def test_the_stand_in_rounds_to_ten_bits() -> None:
    values = torch.tensor([1.0, 1 + 2**-10, 1 + 2**-12, -3.0])
    assert _to_ten_bits(values).tolist() == [1.0, 1 + 2**-10, 1.0, -3.0]


def sliced(compares_in_tf32: bool) -> int:
    if compares_in_tf32:  # as before
        from contextlib import nullcontext

        from paceline.parallel import parallelize

        parallelize.full_precision = nullcontext  # type: ignore[assignment,attr-defined]
    torch.set_float32_matmul_precision("high")
    with (
        StandInForTF32() as stand_in,  # type: ignore[no-untyped-call]
        paceline.start(training_of("gpt", steps=1, batch=14)) as trainer,
    ):
        for batch in trainer:
            trainer.step(batch)
        assert torch.get_float32_matmul_precision() == "high"
        rounded: int = stand_in.rounded
    return rounded


@pytest.mark.slow
def test_a_sliced_model_is_compared_in_fp32_and_trained_in_tf32(tmp_path: Path) -> None:
    layout = Layout(tensor=2)
    with pytest.raises(RankFailed, match="computes different results"):
        run_ranks(sliced, 2, tmp_path / "before", True, layout=layout)
    assert all(run_ranks(sliced, 2, tmp_path / "now", False, layout=layout))


def test_a_check_compares_in_fp32() -> None:
    torch.set_float32_matmul_precision("high")
    try:
        with StandInForTF32() as stand_in:  # type: ignore[no-untyped-call]
            findings = list(check(training_of("gpt"), Layout(replicas=2), torch.device("cpu")))
        assert stand_in.rounded == 0
        assert {each.state for each in findings if each.what in ("loss", "gradient")} == {"ok"}
    finally:
        torch.set_float32_matmul_precision("highest")


def _settings() -> list[Any]:
    backends: Any = torch.backends
    newer = (backends.cuda.matmul, backends.mkldnn.matmul, backends.cudnn.conv, backends.cudnn.rnn)
    return [
        *(each.fp32_precision for each in newer),
        torch.get_float32_matmul_precision(),
        backends.cudnn.allow_tf32,
    ]


@pytest.mark.parametrize("precision", ["highest", "high", "medium"])
def test_the_users_choice_is_back_afterwards(precision: str) -> None:
    torch.set_float32_matmul_precision(precision)
    try:
        before = _settings()
        with full_precision():
            assert _settings() == ["ieee", "ieee", "ieee", "ieee", "highest", False]
        assert _settings() == before
    finally:
        torch.set_float32_matmul_precision("highest")
