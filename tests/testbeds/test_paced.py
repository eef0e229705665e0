import time
from collections.abc import Callable, Iterator

import pytest
import torch
from torch import nn

from paceline.specs.errors import PacelineError
from paceline.testbed.paced import PacedCost, paced_model

pytestmark = pytest.mark.alone

LAYERS = 8


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """As on a node with one core: threads that wait for each other are not what is measured."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def closest_seconds(action: Callable[[], object], expected: float, attempts: int = 20) -> float:
    """On busy cores some attempts come out too slow; none may come out too fast."""
    found = []
    for _ in range(attempts):
        started = time.perf_counter()
        action()
        found.append(time.perf_counter() - started)
        if abs(found[-1] / expected - 1) < 0.03:
            break
    assert min(found) > 0.95 * expected
    print(f"expected {expected:.4f} s, measured {min(found):.4f} s of {len(found)}")
    return min(found)


@pytest.mark.parametrize("parameter_bytes", [0, 400_000])
def test_forward_and_backward_take_their_time(parameter_bytes: int) -> None:
    model = paced_model([PacedCost(0.01, 0.02, parameter_bytes)] * LAYERS)
    inputs = torch.randn(16, 10)
    output = model(inputs)
    forward = closest_seconds(lambda: model(inputs), LAYERS * 0.01)
    assert forward == pytest.approx(LAYERS * 0.01, rel=0.05)
    loss = output.square().mean()
    loss.backward(retain_graph=True)  # makes the gradients' memory
    backward = closest_seconds(lambda: loss.backward(retain_graph=True), LAYERS * 0.02)
    assert backward == pytest.approx(LAYERS * 0.02, rel=0.05)


def test_its_own_arithmetic_counts_as_part_of_the_time() -> None:
    model = paced_model([PacedCost(0.1, 0.0, 40_000_000)])
    inputs = torch.randn(16, 10)
    seconds = closest_seconds(lambda: model(inputs), 0.1)
    assert seconds == pytest.approx(0.1, rel=0.05)


def test_waiting_takes_no_processor() -> None:
    model = paced_model([PacedCost(0.02, 0.02, 4_000)] * LAYERS)
    started = time.process_time()
    model(torch.randn(16, 10)).sum().backward()
    assert time.process_time() - started < 0.2 * LAYERS * 0.04


@pytest.mark.parametrize("loss", [nn.CrossEntropyLoss(), nn.MSELoss()])
def test_gradients_are_real_and_of_the_given_size(loss: nn.Module) -> None:
    torch.manual_seed(0)
    sizes = [4_000, 8_000, 12]
    model = paced_model([PacedCost(0.0, 0.0, size) for size in sizes])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    before = [parameter.detach().clone() for parameter in model.parameters()]
    inputs, target = torch.randn(16, 10), torch.randn(16, 10).softmax(dim=1)
    losses = []
    for _ in range(20):
        optimizer.zero_grad()
        value = loss(model(inputs), target)
        value.backward()
        optimizer.step()
        losses.append(value.item())
    gradients = [parameter.grad for parameter in model.parameters()]
    assert [g.numel() * g.element_size() for g in gradients if g is not None] == sizes
    assert all(g is not None and g.dtype == torch.float32 for g in gradients)
    for parameter, old in zip(model.parameters(), before, strict=True):
        assert not torch.equal(parameter, old)
    assert losses[-1] < losses[0]


def test_gradients_are_those_of_its_formula() -> None:
    torch.manual_seed(0)
    model = paced_model([PacedCost(0.0, 0.0, 40)] * 3).double()
    for parameter in model.parameters():
        nn.init.normal_(parameter)
    inputs = torch.randn(2, 3, dtype=torch.float64, requires_grad=True)
    parameters = tuple(model.parameters())
    names = [name for name, _ in model.named_parameters()]

    def outcome(inputs: torch.Tensor, *values: torch.Tensor) -> torch.Tensor:
        replaced = dict(zip(names, values, strict=True))
        output: torch.Tensor = torch.func.functional_call(model, replaced, (inputs,))
        return output

    assert torch.autograd.gradcheck(outcome, (inputs, *parameters))


def test_a_gradient_is_ready_before_the_layer_ahead_waits() -> None:
    model = paced_model([PacedCost(0.0, 0.03, 4_000)] * 4)
    ready: list[tuple[int, float]] = []

    def note(layer: int) -> Callable[[torch.Tensor], None]:
        return lambda parameter: ready.append((layer, time.perf_counter()))

    for layer, parameter in enumerate(model.parameters()):
        parameter.register_post_accumulate_grad_hook(note(layer))  # type: ignore[no-untyped-call]
    output = model(torch.randn(16, 10)).sum()
    started = time.perf_counter()
    output.backward()
    assert [layer for layer, _ in ready] == [3, 2, 1, 0]
    for layer, moment in ready:
        assert moment - started == pytest.approx((4 - layer) * 0.03, abs=0.02)


def test_whole_numbers_and_evaluation_are_fine() -> None:
    model = paced_model([PacedCost(0.0, 0.0, 40)])
    with torch.no_grad():
        output = model(torch.arange(12).reshape(3, 4))
    assert output.shape == (3, 4)
    assert output.dtype == torch.float32
    assert not output.requires_grad


@pytest.mark.parametrize("cost", [(-1.0, 0.0, 4), (0.0, -0.1, 4), (0.0, 0.0, -4), (0.0, 0.0, 6)])
def test_costs_that_can_not_be(cost: tuple[float, float, int]) -> None:
    with pytest.raises(PacelineError, match=r"negative cost|multiple of 4"):
        PacedCost(*cost)


def test_samples_take_their_time_each() -> None:
    model = paced_model([PacedCost(0.01, 0.0, 40, for_each_sample=True)])
    for samples in (1, 4):
        begin = time.perf_counter()
        model(torch.ones(samples, 2))
        assert time.perf_counter() - begin == pytest.approx(0.01 * samples, abs=0.006)
