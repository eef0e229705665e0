"""Sample order and loading: which worker reads which sample, and when.

The order of the samples is a function of (seed, epoch, position), a global batch is a range of
positions, and a local batch is a slice of it; so the samples of every step are the same on any
number of workers. The names below are imported on first use.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from paceline.data.cache import Cache
    from paceline.data.mixtures import Mixture
    from paceline.data.order import Order, Sequential, Shuffled
    from paceline.data.parquet import Parquet
    from paceline.data.shard_windows import Windowed
    from paceline.data.tars import Tars
    from paceline.data.tokens import Tokens

__all__ = [
    "Cache",
    "Mixture",
    "Order",
    "Parquet",
    "Sequential",
    "Shuffled",
    "Tars",
    "Tokens",
    "Windowed",
]

_HOME = {
    "Cache": "cache",
    "Mixture": "mixtures",
    "Order": "order",
    "Parquet": "parquet",
    "Sequential": "order",
    "Shuffled": "order",
    "Tars": "tars",
    "Tokens": "tokens",
    "Windowed": "shard_windows",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'paceline.data' has no attribute {name!r}")
    return getattr(import_module(f"paceline.data.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return list(__all__)
