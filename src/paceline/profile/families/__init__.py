"""Models given by their dimensions only, for planning what does not exist yet: one file a family.

Planning starts fast, so nothing here imports torch.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from paceline.profile.families.decoder import Decoder, Llama, decoder
from paceline.profile.families.encoder import Encoder, encoder
from paceline.profile.families.experts import Experts, experts
from paceline.profile.families.resnet import ResNet, resnet
from paceline.profile.families.vit import ViT, vit
from paceline.specs.base import Spec
from paceline.specs.measurements.profile import Profile

__all__ = [
    "FAMILIES",
    "Decoder",
    "Encoder",
    "Experts",
    "Family",
    "Llama",
    "ResNet",
    "ViT",
    "decoder",
    "encoder",
    "experts",
    "resnet",
    "vit",
]


class Family(NamedTuple):
    """A family of models: its dimensions, and the profile that follows from them."""

    shape: type[Spec]
    profile: Callable[[Any], Profile]
    """Returns the profile of a `shape`."""
    example: str
    """Dimensions as a user writes them."""


FAMILIES = {
    "gpt": Family(Decoder, decoder, "layers=24 width=1024 heads=16 seq=1024 vocab=50257"),
    "llama": Family(Llama, decoder, "layers=32 width=4096 heads=32 seq=4096 vocab=32000"),
    "moe": Family(
        Experts,
        experts,
        "layers=32 width=4096 heads=32 seq=4096 vocab=32000 experts=8 active=2",
    ),
    "bert": Family(Encoder, encoder, "layers=24 width=1024 heads=16 seq=512 vocab=30522"),
    "vit": Family(ViT, vit, "image=224 patch=16 layers=24 width=1024 heads=16 classes=1000"),
    "resnet": Family(ResNet, resnet, "depth=50 image=224 classes=1000"),
}
"""Families by the name that precedes the dimensions."""
