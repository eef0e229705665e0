"""The planner's arithmetic against formulas of the literature, worked out by hand."""

from dataclasses import replace

import numpy as np
import pytest

from paceline.plan.cost.coefficients import Coefficients
from paceline.plan.cost.compute import EVERY_SECOND
from paceline.plan.cost.engine import Engine
from paceline.plan.cost.layout_table import RECOMPUTE, Layouts
from paceline.plan.cost.memory import KEPT_EVERY_SECOND, memory, stage
from paceline.plan.cost.step_time import StepModel, Times
from paceline.profile.families import Decoder, decoder
from paceline.specs import Layout, PacelineError
from plan.shapes import GPT3, SMALL, cluster, steps

MEGATRON = Engine(weight_bytes=2, gradient_bytes=4, state_bytes=12)


def test_parameters_of_gpt3() -> None:
    """Brown et al. 2020: 175 billion; SC21: 174.6."""
    assert decoder(GPT3).parameters == pytest.approx(174.6e9, rel=1e-3)


def test_parameters_of_llama() -> None:
    """8.03 billion (Llama 3, arXiv:2407.21783)."""
    llama = Decoder(
        layers=32,
        hidden=4096,
        heads=32,
        kv_heads=8,
        ffn=14336,
        seq=8192,
        vocab=128256,
        gated=True,
        tied=False,
        positions=False,
    )
    assert decoder(llama).parameters == pytest.approx(8.03e9, rel=1e-3)


def test_flops_of_a_step() -> None:
    """SC21 eq. 3, without recomputation: 72·B·s·l·h²(1 + s/6h + V/12lh)."""
    s, l, h, v = GPT3.seq, GPT3.layers, GPT3.hidden, GPT3.vocab  # noqa: E741
    expected = 72 * s * l * h**2 * (1 + s / (6 * h) + v / (12 * l * h))
    assert decoder(GPT3).flops == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize(
    ("tensor", "sequence", "recompute", "expected"),
    [
        (1, False, "none", 34 + 5 * 96 * 2048 / 12288),
        (8, False, "none", 10 + 24 / 8 + 5 * 96 * 2048 / (12288 * 8)),
        (8, True, "none", (34 + 5 * 96 * 2048 / 12288) / 8),
        (8, False, "block", 2.0),
    ],
)
def test_saved_activations(tensor: int, sequence: bool, recompute: str, expected: float) -> None:
    """Korthikanti et al. 2022, table 2, in units of s·b·h bytes a layer."""
    layout = Layout.model_validate(
        {"tensor": tensor, "sequence": sequence, "recompute": recompute, "micro_batch": 1}
    )
    held = memory(decoder(GPT3), Layouts.of([layout], 1), 1.0, Engine())
    embedding = 2048 * 12288 / (tensor if sequence else 1)  # dropout's mask
    layers = (held.activations[0] - embedding) / 96
    assert layers / (2048 * 12288) == pytest.approx(expected, rel=1e-9)


def test_korthikanti_selective() -> None:
    """The same with Megatron's selective recomputation and sequence parallelism: 34/t."""
    layouts = Layouts.of([Layout(tensor=8, sequence=True, micro_batch=1)], 1)
    mode = np.array([float(RECOMPUTE.index("attention"))])
    held = memory(decoder(GPT3), replace(layouts, recompute=mode), 1.0, Engine())
    layer = (held.activations[0] - 2048 * 12288 / 8) / 96 / (2048 * 12288)
    assert layer == pytest.approx(34 / 8, rel=1e-9)


@pytest.mark.parametrize(("divided", "expected"), [(0.0, 18.0), (1.0, 6 + 12 / 64)])
def test_bytes_of_a_parameter(divided: float, expected: float) -> None:
    """Megatron: 18, or 6 + 12/d with a distributed optimizer."""
    layouts = Layouts.of([Layout(replicas=64, micro_batch=1)], 64)
    layouts = replace(layouts, optimizer_shards=np.array([divided]))
    held = memory(decoder(SMALL), layouts, 64.0, MEGATRON)
    states = held.weights + held.gradients + held.optimizer
    # Biases and norms of the head are left out of the larger parts.
    assert states[0] / decoder(SMALL).parameters == pytest.approx(expected, rel=1e-3)


def test_micro_batches_under_way() -> None:
    """1F1B holds p on the first stage and 1 on the last; interleaved p(1 + (p-1)/pv) on the first
    (Megatron), ((v-1)p + 1)/v on the last."""
    plain = Layout(pipeline=4, micro_batch=1)
    twice = plain.model_copy(update={"schedule": "interleaved"})
    layouts = Layouts.of([plain, twice], 64)
    first = stage(decoder(SMALL), layouts, 64.0, Engine(), last=False).activations
    last = stage(decoder(SMALL), layouts, 64.0, Engine(), last=True).activations
    assert first[0] / last[0] == pytest.approx(4)
    assert first[1] / last[0] == pytest.approx(4 * (1 + 3 / 8))
    assert last[1] / last[0] == pytest.approx(5 / 2)


def test_the_bubble() -> None:
    """(p-1)/m of the computing, by v chunks less (SC21); stages of blocks only, free transfers."""
    shape = GPT3.model_copy(update={"layers": 8, "vocab": 1})
    what = steps(
        Layout(pipeline=8, micro_batch=1),
        Layout(pipeline=4, micro_batch=1, schedule="interleaved"),
        shape=shape,
        batch=32,
    )
    times = StepModel(what.profile, cluster(), "bf16", Engine(), Coefficients.prior()).times(
        what.layouts, what.batch
    )
    share = times.bubble / times.compute
    assert share[0] == pytest.approx(7 / 32, rel=0.1)
    assert share[1] == pytest.approx(3 / 64, rel=0.1)


def test_dimensions_that_do_not_go_together() -> None:
    with pytest.raises(PacelineError, match="not divided by heads=7"):
        Decoder(layers=1, hidden=512, heads=7, seq=8, vocab=8)
    with pytest.raises(PacelineError, match="kv_heads=3"):
        Decoder(layers=1, hidden=512, heads=8, kv_heads=3, seq=8, vocab=8)


LLAMA = [(4096, 1024, 14336), (8192, 1024, 28672), (16384, 1024, 53248)]
"""Hidden, keys and values, MLP of 8, 70 and 405 billion parameters."""


@pytest.mark.parametrize(("hidden", "keys", "mlp"), LLAMA)
def test_every_second_product_of_a_llama_block(hidden: int, keys: int, mlp: int) -> None:
    """Queries, keys, values, output, gate, up, down: the even ones are computed again."""
    widths = [hidden, keys, keys, hidden, mlp, mlp]
    flops = [hidden * width for width in widths] + [mlp * hidden]
    assert sum(flops[1::2]) / sum(flops) == pytest.approx(EVERY_SECOND, rel=0.05)
    results = [*widths, hidden]
    kept = hidden + hidden + sum(results)  # the block's input, attention, products
    assert (kept - sum(results[1::2])) / kept == pytest.approx(KEPT_EVERY_SECOND, rel=0.02)


def test_habits_of_torch() -> None:
    """Asynchronous slices, every second product, no last product; each by itself."""
    sliced = Layout(tensor=8, micro_batch=4, sequence=True)
    no, forward, both = (
        _parts(sliced, Engine(overlap_tensor=each)).tensor for each in ("no", "forward", "both")
    )
    assert both < forward < no
    assert forward == pytest.approx((no + both) / 2, rel=0.02)

    selective = Layout(micro_batch=4, recompute="selective")
    all_kept, some_kept = Engine(), Engine(keeps_every_second=True)
    assert _parts(selective, some_kept).recompute > _parts(selective, all_kept).recompute
    what = steps(selective)  # with fused attention
    held = [
        memory(what.profile, what.layouts, what.batch, each).activations[0]
        for each in (all_kept, some_kept)
    ]
    assert held[1] == pytest.approx(KEPT_EVERY_SECOND * held[0], rel=0.02)

    block = Layout(tensor=8, micro_batch=4, recompute="block")
    whole, early = (_parts(block, Engine(stops_early=each)) for each in (False, True))
    last = 4 / 12  # of the weights of a block, those of its last product
    assert 1 - last < early.recompute / whole.recompute < 1
    assert early.tensor == pytest.approx(whole.tensor * 2.5 / 3, rel=0.02)


def _parts(layout: Layout, engine: Engine) -> Times:
    what = steps(layout, shape=GPT3)
    model = StepModel(what.profile, what.cluster, "bf16", engine, Coefficients.prior())
    return model.times(what.layouts, what.batch)
