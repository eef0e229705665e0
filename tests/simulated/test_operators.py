"""A list of operators, modules and idioms, each against the CPU."""

import copy
import io
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from paceline_simulated import core
from simulated_devices import on_sim


def _trained(model: nn.Module, x: Tensor) -> list[Tensor]:
    model(x).square().mean().backward()
    return [p.grad for p in model.parameters() if p.grad is not None]


def _stepped(make: Callable[..., torch.optim.Optimizer], **options: Any) -> Callable[..., Any]:
    def run(model: nn.Module, x: Tensor) -> list[Tensor]:
        optimizer = make(model.parameters(), **options)
        for _ in range(3):
            optimizer.zero_grad()
            _trained(model, x)
            optimizer.step()
        return [p.detach() for p in model.parameters()]

    return run


def _saved(model: nn.Module) -> list[Tensor]:
    file = io.BytesIO()
    torch.save(model.state_dict(), file)
    file.seek(0)
    device = next(model.parameters()).device
    return list(torch.load(file, map_location=device, weights_only=True).values())


def _called(model: nn.Module, x: Tensor) -> Tensor:
    found: Tensor = model(x)
    return found


def _autocast(model: nn.Module, x: Tensor) -> Tensor:
    with torch.autocast(x.device.type, dtype=torch.bfloat16):
        found: Tensor = model(x).float()
    return found


def _recomputed(model: nn.Module, x: Tensor) -> list[Tensor]:
    torch.utils.checkpoint.checkpoint(model, x, use_reentrant=False).sum().backward()
    return [p.grad for p in model.parameters() if p.grad is not None]


def _packed(model: nn.Module, x: Tensor) -> Tensor:
    packed = nn.utils.rnn.pack_padded_sequence(x, torch.tensor([5, 3]), batch_first=True)
    found: Tensor = nn.utils.rnn.pad_packed_sequence(model(packed)[0], batch_first=True)[0]
    return found


def _written_in_views(x: Tensor) -> Tensor:
    x[1:, :].mul_(2)
    x.t().add_(1)
    x.view(-1)[::2].sub_(1)
    x.diagonal().fill_(3)
    return x


def _written_by_mask(x: Tensor) -> Tensor:
    x[x > 0] = 1.0
    x[x < 0] = x[x < 0] * 2
    return x


def _sum_of_sines(x: Tensor) -> Tensor:
    return x.sin().sum()


def _squared_norm(x: Tensor) -> Tensor:
    return x @ x


def _convolutional() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 4, 3, bias=False),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(36, 2),
    )


def _cases() -> dict[str, tuple[Any, ...]]:
    r, square, image = torch.randn, torch.randn(4, 4), torch.randn(2, 3, 8, 8)
    whole = torch.randint(5, (10,))
    encoder = nn.TransformerEncoderLayer(16, 2, 32, 0.0, batch_first=True)
    return {
        # modules and their gradients
        "Conv1d": (_trained, nn.Conv1d(3, 4, 3), r(2, 3, 8)),
        "Conv2d": (_trained, nn.Conv2d(3, 4, 3, groups=1, padding=1), image),
        "ConvTranspose2d": (_trained, nn.ConvTranspose2d(3, 4, 3), image),
        "convolutional network": (_trained, _convolutional(), image),
        "convolutional network, evaluated": (_called, _convolutional().eval(), image),
        "GroupNorm": (_trained, nn.GroupNorm(2, 4), r(2, 4, 8)),
        "TransformerEncoderLayer": (_trained, encoder, r(2, 5, 16)),
        "LSTM, packed": (_packed, nn.LSTM(4, 8, batch_first=True), r(2, 5, 4)),
        "Embedding": (_trained, nn.Embedding(10, 4), torch.randint(10, (3, 4))),
        "EmbeddingBag": (_trained, nn.EmbeddingBag(10, 4), torch.randint(10, (3, 4))),
        "Upsample": (nn.Upsample(scale_factor=2, mode="bilinear"), image),
        # functions of nn
        "attention": (
            lambda q: F.scaled_dot_product_attention(q, q, q, is_causal=True),
            r(1, 2, 8, 16),
        ),
        "cross_entropy": (lambda x, y: F.cross_entropy(x, y, label_smoothing=0.1), r(10, 5), whole),
        "ctc_loss": (
            lambda x: F.ctc_loss(
                x.log_softmax(2),
                torch.ones(2, 3, dtype=torch.long, device=x.device),
                torch.tensor([6, 6]),
                torch.tensor([3, 2]),
            ),
            r(6, 2, 5),
        ),
        "mse_loss": (lambda x: F.mse_loss(x, x * 2), square),
        "smooth_l1_loss": (lambda x: F.smooth_l1_loss(x, x * 2, reduction="sum"), square),
        "binary_cross_entropy": (
            lambda x: F.binary_cross_entropy(x.sigmoid(), x.sin().abs()),
            square,
        ),
        "one_hot": (lambda x: F.one_hot(x, 5), whole),
        "pad": (lambda x: F.pad(x, (1, 2, 2, 1), mode="reflect"), image),
        "grid_sample": (lambda x: F.grid_sample(x, x[..., :2], align_corners=False), r(2, 4, 4, 4)),
        # optimizers
        "AdamW": (_stepped(torch.optim.AdamW), nn.Linear(4, 4), r(2, 4)),
        "AdamW, fused": (_stepped(torch.optim.AdamW, fused=True), nn.Linear(4, 4), r(2, 4)),
        "AdamW, one by one": (_stepped(torch.optim.AdamW, foreach=False), nn.Linear(4, 4), r(2, 4)),
        "SGD, momentum": (
            _stepped(torch.optim.SGD, lr=0.1, momentum=0.9),
            nn.Linear(4, 4),
            r(2, 4),
        ),
        "Adagrad": (_stepped(torch.optim.Adagrad), nn.Linear(4, 4), r(2, 4)),
        "RMSprop": (_stepped(torch.optim.RMSprop), nn.Linear(4, 4), r(2, 4)),
        "Adafactor": (_stepped(torch.optim.Adafactor), nn.Linear(4, 4), r(2, 4)),
        "LBFGS": (
            lambda m, x: torch.optim.LBFGS(m.parameters()).step(  # type: ignore[no-untyped-call]
                lambda: (m.zero_grad(), _trained(m, x), m(x).square().mean())[2]
            ),
            nn.Linear(4, 4),
            r(2, 4),
        ),
        "foreach": (lambda a, b: torch._foreach_mul([a, b], torch.tensor(0.5)), r(3), r(4)),
        "foreach norm": (lambda a, b: torch._foreach_norm([a, b]), r(3), r(4)),
        # indexing and shapes
        "mask": (lambda x: x[x > 0], r(10)),
        "mask, written": (_written_by_mask, r(10)),
        "index_put": (lambda x: x.index_put((x.argsort()[:2],), x[:2], accumulate=True), r(10)),
        "host index": (lambda x: x[torch.tensor([1, 2])], r(10)),
        "gather": (lambda x: x.gather(0, x.argsort()), r(10)),
        "scatter_add": (lambda x: torch.zeros_like(x).scatter_add(0, x.argsort(), x), r(10)),
        "masked_fill": (lambda x: x.masked_fill(x > 0, 0.0), r(10)),
        "where, clamp": (lambda x: torch.where(x > 0, x, x.clamp(min=-0.5)), r(10)),
        "topk, sort": (lambda x: [*x.topk(3), *x.sort()], r(10)),
        "unique": (lambda x: torch.unique(x, return_inverse=True), whole),
        "bincount": (torch.bincount, whole),
        "views, written": (_written_in_views, square),
        "unfold": (lambda x: x.unfold(0, 3, 1).sum(1), r(10)),
        "split, cat, stack": (
            lambda x: torch.cat([*x.split(2), torch.stack([x[0], x[1]])]),
            square,
        ),
        "cumsum, flip, roll": (lambda x: x.cumsum(0).flip(0).roll(1), r(10)),
        "out=": (lambda x: torch.add(x, x, out=torch.empty(0, device=x.device)), square),
        "resize_": (lambda x: x.clone().resize_(2, 2), square),
        "expand, repeat": (lambda x: x[:1].expand(3, 4) + x[:1].repeat(3, 1), square),
        "arange, linspace": (lambda x: torch.arange(0, 1, 0.1, device=x.device) + x, r(10)),
        "tril, eye": (lambda x: x.tril() + torch.eye(4, device=x.device), square),
        # mathematics
        "einsum": (lambda a, b: torch.einsum("bij,bjk->bik", a, b), r(2, 3, 4), r(2, 4, 5)),
        "bfloat16": (lambda x: (x.bfloat16() @ x.bfloat16()).float(), square),
        "float64": (lambda x: (x.double() @ x.double()).float(), square),
        "integers": (lambda x: (x // 2) % 3 + (x << 1), whole),
        "complex": (lambda x: torch.fft.fft(x).conj().abs(), r(8)),
        "view_as_complex": (
            lambda x: torch.view_as_real(torch.view_as_complex(x)[1:] * 2),
            r(8, 2),
        ),
        "solve": (lambda x: torch.linalg.solve(x @ x.T + torch.eye(4, device=x.device), x), square),
        "svd": (torch.linalg.svdvals, square),
        "reductions": (
            lambda x: [x.sum(), x.mean(0), x.std(), x.amax(1), x.argmax(), x.norm()],
            square,
        ),
        # what surrounds tensors
        "autocast": (_autocast, nn.Linear(4, 4), r(2, 4)),
        "recomputation": (_recomputed, nn.Linear(4, 4), r(2, 4)),
        "torch.func": (torch.func.grad(_sum_of_sines), r(4)),
        "vmap": (torch.vmap(_squared_norm), square),
        "save, load": (_saved, nn.Linear(4, 4)),
        "NumPy": (lambda x: torch.from_numpy(x.cpu().numpy()), r(4)),
        "deepcopy": (lambda x: copy.deepcopy(nn.Parameter(x)).detach(), r(4)),
        "is_set_to": (lambda x: x.is_set_to(x.view(4, 4)), square),
    }


def _moved(value: Any) -> Any:
    value = copy.deepcopy(value)
    return value.to("sim") if isinstance(value, Tensor | nn.Module) else value


def _compare(found: Any, expected: Any) -> None:
    if isinstance(expected, Tensor):
        torch.testing.assert_close(found.cpu(), expected, atol=1e-5, rtol=1e-5)
    elif isinstance(expected, list | tuple):
        for one, other in zip(found, expected, strict=True):
            _compare(one, other)
    else:
        assert found == expected


@on_sim()
def test_operators_follow_the_cpu() -> None:
    torch.manual_seed(0)
    wrong = {}
    cases = _cases()
    for name, (call, *arguments) in cases.items():
        try:
            expected = call(*copy.deepcopy(arguments))
            _compare(call(*[_moved(each) for each in arguments]), expected)
        except Exception as error:
            wrong[name] = f"{type(error).__name__}: {error}"
        core.heal(0)
    assert not wrong, f"{len(wrong)} of {len(cases)}: {wrong}"
    at_once = [note for note in core.notes() if note.startswith("no_meta_kernel")]
    assert not at_once, f"not queued: {at_once}"
    random = [note for note in core.notes() if note.startswith("random_without_generator")]
    assert not random
