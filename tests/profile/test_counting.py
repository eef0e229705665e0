"""Costs counted without hardware, beside what torch and arithmetic say."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import TensorDataset
from torch.utils.flop_counter import FlopCounterMode, flop_registry

from paceline.parallel.dry_run.model_profile import profile_of
from paceline.profile.matmuls import _FINDERS, is_uncounted
from paceline.specs import Layout, Profile
from paceline.user.training import Training

LAYERS, WIDTH, HEADS, SEQ, VOCAB = 3, 64, 4, 16, 96


class _Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.out = nn.Linear(WIDTH, WIDTH)
        self.up = nn.Linear(WIDTH, 4 * WIDTH)
        self.down = nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, seq, width = x.shape
        q, k, v = (
            each.view(batch, seq, HEADS, width // HEADS).transpose(1, 2)
            for each in self.qkv(self.norm(x)).split(width, dim=-1)
        )
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, seq, width))
        output: torch.Tensor = x + self.down(F.gelu(self.up(x)))
        return output


class _Gpt(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCAB, WIDTH)
        self.blocks = nn.ModuleList(_Block() for _ in range(LAYERS))
        self.head = nn.Linear(WIDTH, VOCAB, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x)
        output: torch.Tensor = self.head(x)
        return output


class _Pixels(nn.Module):
    """Convolutions in blocks that differ."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1)
        self.stages = nn.Sequential(self._stage(8, 16), self._stage(16, 32))
        self.head = nn.Linear(32, 10)

    def _stage(self, inside: int, outside: int) -> nn.Sequential:
        return nn.Sequential(
            nn.Conv2d(inside, outside, 3, stride=2, padding=1), nn.BatchNorm2d(outside), nn.ReLU()
        )

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        output: torch.Tensor = self.head(self.stages(self.stem(images)).mean((2, 3)))
        return output


def _gpt() -> Training:
    tokens = torch.zeros(8, SEQ, dtype=torch.long)
    return Training(
        model=_Gpt,
        loss=lambda output, target: F.cross_entropy(output.flatten(0, 1), target.flatten()),
        data=TensorDataset(tokens, tokens),
        optimizer=torch.optim.AdamW,
        batch=8,
        steps=1,
    )


def _pixels() -> Training:
    return Training(
        model=_Pixels,
        loss=F.cross_entropy,
        data=TensorDataset(torch.zeros(8, 3, 16, 16), torch.zeros(8, dtype=torch.long)),
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9),
        batch=8,
        steps=1,
    )


def _counted(training: Training, precision: str = "fp32") -> Profile:
    return profile_of(training, "test", Layout.model_validate({"precision": precision}))


def _flops_by_torch(model: nn.Module, inputs: torch.Tensor) -> float:
    with FlopCounterMode(display=False) as counter:
        model.to("meta")(inputs.to("meta"))
    return float(counter.get_total_flops())


def test_flops_of_a_transformer_are_those_of_torch_but_for_the_half_that_is_masked() -> None:
    profile = _counted(_gpt())
    of_torch = _flops_by_torch(_Gpt(), torch.zeros(1, SEQ, dtype=torch.long))
    masked = LAYERS * 2 * SEQ * SEQ * WIDTH  # a half of two products
    assert profile.flops / 3 == of_torch - masked


def test_tokens_of_a_sample_are_integers_that_have_targets() -> None:
    """Before, no profile of a training had a sequence, so its length could not be in tokens."""
    assert _counted(_gpt()).sequence == SEQ
    assert _counted(_pixels()).sequence is None


def test_flops_of_convolutions_are_those_of_torch() -> None:
    profile = _counted(_pixels())
    assert profile.flops / 3 == _flops_by_torch(_Pixels(), torch.zeros(1, 3, 16, 16))
    assert profile.block.count == 2
    assert {each.sliced for each in profile.block.matmuls} == {"whole"}


def test_every_parameter_is_counted_once_and_where_it_is_used() -> None:
    profile = _counted(_gpt())
    assert profile.parameters == sum(each.numel() for each in _Gpt().parameters())
    assert profile.before.parameters + profile.before.parameters_whole == VOCAB * WIDTH
    assert profile.after.parameters == VOCAB * WIDTH
    # The norm, and the biases that are added after the sum over slices.
    assert profile.block.parameters_whole == 2 * WIDTH + 2 * WIDTH


def test_slices_are_those_of_the_engine() -> None:
    block = _counted(_gpt()).block
    assert block.reductions == 2
    products = [(each.columns, each.sliced) for each in block.matmuls if not each.attention]
    assert products == [
        (3 * WIDTH, "columns"),
        (WIDTH, "inner"),
        (4 * WIDTH, "columns"),
        (WIDTH, "inner"),
    ]
    assert {each.sliced for each in block.matmuls if each.attention} == {"repeats"}


def test_saved_bytes_of_a_block_are_those_that_the_engine_keeps() -> None:
    kept: dict[int, int] = {}
    block = _Block()
    own = {each.untyped_storage().data_ptr() for each in block.parameters()}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    held = []
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        held.append(block(torch.randn(1, SEQ, WIDTH, requires_grad=True)))
    profile = _counted(_gpt()).block
    counted = profile.saved_bytes + profile.saved_bytes_whole
    # The input of a block may be counted with the one before.
    assert abs(counted - sum(kept.values())) <= 4 * SEQ * WIDTH


def test_bytes_halve_in_half_precision_where_products_are() -> None:
    full, half = _counted(_gpt()).block, _counted(_gpt(), "bf16").block
    assert half.product_bytes < 0.6 * full.product_bytes
    assert half.forward_flops == full.forward_flops


def test_the_state_of_the_optimizer_is_seen() -> None:
    assert _counted(_gpt()).state_bytes == 8
    assert _counted(_pixels()).state_bytes == 4
    assert _counted(_gpt().replace(average=0.99)).state_bytes == 12


def test_what_torch_counts_is_counted_here_or_named() -> None:
    """Only the backward of counted operators is neither: it has twice the products of forward."""
    neither = []
    for packet in flop_registry:
        for overload in getattr(packet, "overloads", list)():
            operator = getattr(packet, overload)
            counted = packet in _FINDERS or "scaled_dot_product" in str(packet)
            if not counted and not is_uncounted(operator):
                neither.append(str(packet))
    assert set(neither) == {"aten.convolution_backward"}


def test_operators_that_only_move_bytes_are_not_named() -> None:
    aten = torch.ops.aten
    for packet in (aten.add, aten.mul, aten.sum, aten.sqrt, aten.native_layer_norm, aten.embedding):
        for overload in packet.overloads():  # type: ignore[no-untyped-call]
            assert not is_uncounted(getattr(packet, overload))
