"""Trainings on the simulated device: the CPU's numbers, and no waits."""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from paceline_simulated import core
from paceline_simulated import torch_module as sim
from paceline_simulated.waits import host_waits, reset, strict
from simulated_devices import on_sim

STEPS, WARMUP = 12, 2


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.before = nn.LayerNorm(width)
        self.attention = nn.MultiheadAttention(width, 4, batch_first=True)
        self.after = nn.LayerNorm(width)
        self.hidden = nn.Sequential(nn.Linear(width, 64), nn.GELU(), nn.Linear(64, width))

    def forward(self, x: Tensor) -> Tensor:
        normed = self.before(x)
        x = x + self.attention(normed, normed, normed, need_weights=False)[0]
        found: Tensor = x + self.hidden(self.after(x))
        return found


class Transformer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(50, 32)
        self.places = nn.Parameter(torch.randn(8, 32) * 0.02)
        self.blocks = nn.Sequential(Block(32), Block(32))
        self.head = nn.Linear(32, 50)

    def forward(self, tokens: Tensor) -> Tensor:
        found: Tensor = self.head(self.blocks(self.tokens(tokens) + self.places))
        return found


def _losses(device: str, after_step: Callable[[Tensor], object] = lambda loss: None) -> Tensor:
    torch.manual_seed(0)
    model = Transformer().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    tokens = torch.randint(50, (4, 9)).to(device)
    losses = []
    for step in range(STEPS):
        if step == WARMUP:
            reset()
        logits = model(tokens[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        after_step(loss)
        losses.append(loss.detach())
    return torch.stack(losses)


@on_sim()
def test_a_transformer_follows_the_cpu_without_waits() -> None:
    expected = _losses("cpu")
    reset()
    found = _losses("sim")
    assert host_waits().total() == 0
    assert not core.notes()
    assert (found.cpu() - expected).abs().max() < 1e-6
    assert expected[-1] < expected[0] - 0.5


@on_sim()
def test_reading_the_loss_waits_once_per_step() -> None:
    _losses("sim", after_step=lambda loss: loss.item())
    (wait,) = host_waits()
    assert (wait.what, wait.file) == ("item", __file__)
    assert host_waits().total() == STEPS - WARMUP
    with strict(), pytest.raises(RuntimeError, match="strict mode"):
        _losses("sim", after_step=lambda loss: loss.item())


@on_sim()
def test_recurrent_networks_follow_the_cpu() -> None:
    """Their cells are fused on this device type: formulas of ATen/native/cuda/RNN.cu."""
    for kind, bias in ((nn.LSTM, True), (nn.LSTM, False), (nn.GRU, True), (nn.GRU, False)):
        model = kind(4, 8, num_layers=2, bias=bias, bidirectional=True)
        x = torch.randn(5, 2, 4)
        results = []
        for device in ("cpu", "sim"):
            model.zero_grad()
            model.to(device)
            out, state = model(x.to(device))
            hidden = state[1] if kind is nn.LSTM else state
            (out.square().sum() + hidden.sum()).backward()
            gradients = [p.grad.cpu() for p in model.parameters() if p.grad is not None]
            results.append([out.detach().cpu(), *gradients])
        assert len(results[0]) == len(results[1]) > 4
        for expected, found in zip(*results, strict=True):
            torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)


@on_sim()
def test_loss_scaling_skips_steps_that_overflow() -> None:
    """torch.amp.GradScaler reads one flag per step, on CUDA as well."""
    model = nn.Linear(4, 4).to("sim")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("sim", init_scale=2.0**10, growth_interval=2)
    for factor, scale in ((1.0, 2.0**10), (float("inf"), 2.0**9), (1.0, 2.0**9), (1.0, 2.0**10)):
        before = model.weight.detach().clone()
        with torch.autocast("sim", dtype=torch.float16):
            y = model(torch.ones(2, 4, device="sim"))
        assert y.dtype == torch.float16
        optimizer.zero_grad()
        reset()
        scaler.scale((y.float() * factor).sum()).backward()
        scaler.step(optimizer)
        scaler.update()
        assert [wait.what for wait in host_waits()] == ["item"]
        assert scaler.get_scale() == scale
        moved = not torch.equal(model.weight.detach(), before)
        assert moved == (factor == 1.0)


@on_sim()
def test_autocast_follows_the_lists_of_cuda() -> None:
    """torch: "Automatic Mixed Precision", CUDA ops that autocast to float16, or to float32."""
    x = torch.randn(4, 4, device="sim")
    with torch.autocast("sim", dtype=torch.bfloat16):
        assert (x @ x).dtype == torch.bfloat16
        assert F.linear(x, x).dtype == torch.bfloat16
        assert (x @ x).softmax(-1).dtype == torch.float32
        assert (x @ x).sum().dtype == torch.float32
        assert F.layer_norm(x @ x, (4,)).dtype == torch.float32


@on_sim(devices=2)
def test_random_numbers_are_seeded_per_device() -> None:
    def drawn(device: str) -> list[list[float]]:
        x = torch.ones(8, device=device)
        return [torch.randn(8, device=device).tolist(), F.dropout(x, 0.5).tolist()]

    torch.manual_seed(1)
    first = [drawn("sim:0"), drawn("sim:1")]
    torch.manual_seed(1)
    assert [drawn("sim:0"), drawn("sim:1")] == first
    state = sim.get_rng_state(1)
    after = drawn("sim:1")
    assert after != first[1]
    sim.set_rng_state(state, 1)
    assert drawn("sim:1") == after
    with torch.random.fork_rng([0], device_type="sim"):
        torch.randn(8, device="sim:0")
    assert drawn("sim:1") != after

    generator = torch.Generator(device="sim").manual_seed(3)
    x = torch.randn(8, device="sim", generator=generator)
    copy = generator.clone_state()
    y = torch.rand(8, device="sim", generator=generator)
    assert torch.equal(y.cpu(), torch.rand(8, device="sim", generator=copy).cpu())
    generator.manual_seed(3)
    assert torch.equal(x.cpu(), torch.randn(8, device="sim", generator=generator).cpu())
    assert torch.randperm(8, device="sim").sort().values.tolist() == list(range(8))


@on_sim()
def test_recomputed_blocks_draw_the_same_random_numbers() -> None:
    """torch.utils.checkpoint keeps and restores the state of the device's generator."""
    model = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.5)).to("sim")
    x = torch.randn(4, 8, device="sim")
    gradients = []
    for recompute in (False, True):
        torch.manual_seed(5)
        model.zero_grad()
        if recompute:
            y = torch.utils.checkpoint.checkpoint(model, x, use_reentrant=False)
        else:
            y = model(x)
        y.square().sum().backward()
        gradients.append([p.grad.cpu() for p in model.parameters() if p.grad is not None])
    for expected, found in zip(*gradients, strict=True):
        torch.testing.assert_close(found, expected)
