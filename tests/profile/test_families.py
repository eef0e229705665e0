"""Families of models against the same models in PyTorch, counted on the meta device, and against
published figures."""

from typing import Any

import pytest
import torch
import transformers
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.autograd.graph import saved_tensors_hooks
from torch.utils.flop_counter import FlopCounterMode

from paceline.profile.families import (
    Decoder,
    Encoder,
    Experts,
    Llama,
    ResNet,
    ViT,
    decoder,
    encoder,
    experts,
    resnet,
    vit,
)
from paceline.specs import PacelineError
from paceline.specs.measurements.profile import Profile

library: Any = transformers
"""Partly typed only."""
LAYERS, HIDDEN, HEADS, KV_HEADS, FFN, SEQ, VOCAB = 3, 128, 4, 2, 320, 64, 1000
EXPERTS, ACTIVE = 8, 2
TOKENS = torch.zeros(1, SEQ, dtype=torch.long, device="meta")
DIMENSIONS: dict[str, Any] = {
    "layers": LAYERS,
    "hidden": HIDDEN,
    "heads": HEADS,
    "ffn": FFN,
    "attention": "whole",
}
WORDS: dict[str, Any] = {"seq": SEQ, "vocab": VOCAB}
CONFIGURED: dict[str, Any] = {
    "num_hidden_layers": LAYERS,
    "hidden_size": HIDDEN,
    "num_attention_heads": HEADS,
    "intermediate_size": FFN,
    "attn_implementation": "eager",  # all scores are products that FlopCounterMode sees
}


def image(side: int) -> torch.Tensor:
    return torch.zeros(1, 3, side, side, dtype=torch.bfloat16, device="meta")


def gpt2() -> Any:
    config = library.GPT2Config(
        n_layer=LAYERS,
        n_embd=HIDDEN,
        n_head=HEADS,
        n_inner=FFN,
        n_positions=SEQ,
        vocab_size=VOCAB,
        bos_token_id=0,
        eos_token_id=0,
        attn_implementation="eager",
    )
    return library.GPT2LMHeadModel(config)


def llama() -> Any:
    config = library.LlamaConfig(**CONFIGURED, num_key_value_heads=KV_HEADS, vocab_size=VOCAB)
    return library.LlamaForCausalLM(config)


def mixtral() -> Any:
    config = library.MixtralConfig(
        **CONFIGURED,
        num_key_value_heads=KV_HEADS,
        vocab_size=VOCAB,
        num_local_experts=EXPERTS,
        num_experts_per_tok=ACTIVE,
    )
    return library.MixtralForCausalLM(config)


def bert() -> Any:
    config = library.BertConfig(**CONFIGURED, vocab_size=VOCAB, max_position_embeddings=SEQ)
    return library.BertForMaskedLM(config)


def vision() -> Any:
    config = library.ViTConfig(**CONFIGURED, image_size=96, patch_size=16, num_labels=10)
    return library.ViTForImageClassification(config)


def residual(depth: int, classes: int = 1000) -> Any:
    numbers = {18: [2, 2, 2, 2], 34: [3, 4, 6, 3], 50: [3, 4, 6, 3], 101: [3, 4, 23, 3]}
    config = library.ResNetConfig(
        depths=numbers[depth],
        layer_type="bottleneck" if depth >= 50 else "basic",
        hidden_sizes=[256, 512, 1024, 2048] if depth >= 50 else [64, 128, 256, 512],
        num_labels=classes,
    )
    return library.ResNetForImageClassification(config)


SAME = {
    "gpt": (gpt2, decoder(Decoder(**DIMENSIONS, **WORDS)), TOKENS),
    "llama": (llama, decoder(Llama(**DIMENSIONS, **WORDS, kv_heads=KV_HEADS)), TOKENS),
    "bert": (bert, encoder(Encoder(**DIMENSIONS, **WORDS)), TOKENS),
    "vit": (vision, vit(ViT(**DIMENSIONS, image=96, patch=16, classes=10)), image(96)),
    "resnet-18": (
        lambda: residual(18),
        resnet(ResNet(depth=18, image=160, classes=1000)),
        image(160),
    ),
    "resnet-34, odd sizes": (
        lambda: residual(34, classes=7),
        resnet(ResNet(depth=34, image=150, classes=7)),
        image(150),
    ),
    "resnet-50": (
        lambda: residual(50),
        resnet(ResNet(depth=50, image=224, classes=1000)),
        image(224),
    ),
    "resnet-101": (
        lambda: residual(101),
        resnet(ResNet(depth=101, image=224, classes=1000)),
        image(224),
    ),
}
MOE = experts(Experts(**DIMENSIONS, **WORDS, kv_heads=KV_HEADS, experts=EXPERTS, active=ACTIVE))


def on_meta(make: Any) -> nn.Module:
    with torch.device("meta"):
        model: nn.Module = make().to(torch.bfloat16)
    return model


def parameters(model: nn.Module) -> int:
    return sum(each.numel() for each in model.parameters())


def forward_flops(profile: Profile) -> float:
    return sum(each.count * each.forward_flops for each in profile.layers)


def saved_bytes(profile: Profile) -> float:
    return sum(each.count * (each.saved_bytes + each.saved_bytes_whole) for each in profile.layers)


@pytest.mark.parametrize("name", SAME)
def test_parameters_and_flops_are_those_of_pytorch(name: str) -> None:
    make, profile, inputs = SAME[name]
    model = on_meta(make)
    # A block's parameters are whole numbers: where blocks differ, their mean is rounded.
    assert abs(profile.parameters - parameters(model)) <= profile.block.count / 2
    with FlopCounterMode(display=False) as counted:
        model(inputs)
    assert forward_flops(profile) == pytest.approx(counted.get_total_flops(), rel=1e-12)


def test_parameters_of_experts_are_those_of_pytorch() -> None:
    assert MOE.parameters == parameters(on_meta(mixtral))


def test_flops_of_experts_are_those_of_pytorch() -> None:
    """Which expert gets a token depends on values, which meta tensors lack: here each gets as many
    as any other. What is not an expert is Llama's."""
    sorted_tokens = torch.zeros(EXPERTS, SEQ * ACTIVE // EXPERTS, HIDDEN, device="meta")
    router = torch.zeros(HIDDEN, EXPERTS, device="meta")
    into = torch.zeros(EXPERTS, HIDDEN, 2 * FFN, device="meta")
    back = torch.zeros(EXPERTS, FFN, HIDDEN, device="meta")
    dense = Llama(**DIMENSIONS, **WORDS, kv_heads=KV_HEADS)
    mlp = sum(each.flops for each in decoder(dense).block.matmuls[-2:])
    with FlopCounterMode(display=False) as counted:
        torch.zeros(SEQ, HIDDEN, device="meta") @ router
        gate, up = (sorted_tokens @ into).chunk(2, dim=-1)
        (gate * up) @ back
    expected = forward_flops(decoder(dense)) + LAYERS * (counted.get_total_flops() - mlp)
    assert forward_flops(MOE) == pytest.approx(expected, rel=1e-12)


def test_what_a_resnet_saves_is_what_pytorch_saves() -> None:
    model = on_meta(lambda: residual(50))
    own = {each.untyped_storage()._cdata for each in (*model.parameters(), *model.buffers())}
    kept: dict[int, torch.UntypedStorage] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage._cdata not in own:
            kept[storage._cdata] = storage
        return tensor

    with saved_tensors_hooks(keep, lambda tensor: tensor):
        model(image(224))
    counted = sum(each.nbytes() for each in kept.values())
    ours = saved_bytes(resnet(ResNet(depth=50, image=224, classes=1000)))
    assert ours == pytest.approx(counted, rel=0.01)


@pytest.mark.parametrize(
    ("profile", "published_parameters", "published_products"),
    [
        # torchvision's table of models: 25.6M parameters, 4.09 GFLOPS (multiply-adds).
        (resnet(ResNet(depth=50, image=224, classes=1000)), 25.6e6, 4.09e9),
        (resnet(ResNet(depth=152, image=224, classes=1000)), 60.2e6, 11.51e9),
        # 307M in Dosovitskiy et al. 2020, table 1; torchvision: 61.55 GFLOPS.
        (
            vit(ViT(image=224, patch=16, layers=24, hidden=1024, heads=16, classes=1000)),
            307e6,
            61.55e9,
        ),
    ],
)
def test_published_figures(
    profile: Profile, published_parameters: float, published_products: float
) -> None:
    assert profile.parameters == pytest.approx(published_parameters, rel=0.01)
    assert forward_flops(profile) / 2 == pytest.approx(published_products, rel=0.002)


SIZES: st.SearchStrategy[dict[str, Any]] = st.builds(
    dict,
    layers=st.integers(1, 12),
    hidden=st.sampled_from([64, 128, 384]),
    heads=st.sampled_from([1, 2, 8]),
    seq=st.integers(1, 300),
    vocab=st.integers(1, 5000),
    attention=st.sampled_from(["fused", "whole"]),
    dropout=st.booleans(),
)


@given(SIZES, st.integers(2, 5))
def test_blocks_cost_in_proportion_to_their_number(sizes: dict[str, Any], times: int) -> None:
    more = sizes | {"layers": times * sizes["layers"]}
    families: list[Any] = [(Decoder, decoder), (Llama, decoder), (Encoder, encoder)]
    for shape, profile in families:
        few, many = profile(shape(**sizes)), profile(shape(**more))
        assert many.flops - _ends(many) == pytest.approx(times * (few.flops - _ends(few)))
        assert many.parameters - few.parameters == (times - 1) * few.block.count * (
            few.block.parameters + few.block.parameters_whole
        )


def _ends(profile: Profile) -> float:
    return 3 * (profile.before.forward_flops + profile.after.forward_flops)


@given(SIZES, st.integers(1, 64), st.data())
def test_one_expert_for_all_tokens_is_an_mlp_with_a_router(
    sizes: dict[str, Any], number: int, data: st.DataObject
) -> None:
    dense = decoder(Llama(**sizes))
    active = data.draw(st.integers(1, number))
    sparse = experts(Experts(**sizes, experts=number, active=active))
    mlp = sum(each.flops for each in dense.block.matmuls[-2:])
    router = 2 * sizes["seq"] * sizes["hidden"] * number
    expected = dense.block.forward_flops + (active - 1) * mlp + router
    assert sparse.block.forward_flops == pytest.approx(expected)
    assert sparse.block.saved_bytes >= dense.block.saved_bytes
    if number == 1:
        whole = sparse.block.parameters_whole - dense.block.parameters_whole
        assert sparse.block.parameters == dense.block.parameters
        assert whole == sizes["hidden"]


@given(st.sampled_from([18, 34, 50, 101, 152]), st.integers(1, 8), st.integers(2, 4))
def test_a_resnet_costs_in_proportion_to_its_pixels(depth: Any, sides: int, times: int) -> None:
    """Where the strides divide the image. Parameters do not depend on it."""
    small = resnet(ResNet(depth=depth, image=32 * sides, classes=10))
    large = resnet(ResNet(depth=depth, image=32 * sides * times, classes=10))
    assert large.parameters == small.parameters
    for few, many in ((small.before, large.before), (small.block, large.block)):
        assert many.saved_bytes_whole == pytest.approx(times**2 * few.saved_bytes_whole)
        assert many.moved_bytes_whole == pytest.approx(times**2 * few.moved_bytes_whole)
        assert many.forward_flops == pytest.approx(times**2 * few.forward_flops)
    for each in (small.block, large.block):
        assert each.output_bytes < each.product_bytes_whole < each.saved_bytes_whole


def test_dimensions_that_cannot_be() -> None:
    with pytest.raises(PacelineError, match="active=3 is more than experts=2"):
        Experts(**DIMENSIONS, **WORDS, experts=2, active=3)
    with pytest.raises(PacelineError, match="image=100 is not divided by patch=16"):
        ViT(**DIMENSIONS, image=100, patch=16, classes=10)


def test_the_rule_for_the_width_of_llama() -> None:
    """Of the released Llama 2 with 7 and 13 billion parameters."""
    for hidden, ffn in ((4096, 11008), (5120, 13824)):
        shape = Llama(layers=1, hidden=hidden, heads=32, seq=8, vocab=8)
        assert shape.ffn_width == ffn
