"""The repeated blocks of a model: what is sharded, and computed again, as a unit."""

from torch import nn


def blocks(model: nn.Module) -> list[nn.Module]:
    """The longest run of children of one class in a list or sequence of the model; none if there
    is no such run.

    Transformers and residual networks are written as such lists; finding them needs no tracing
    and no word from the user.
    """
    candidates = [
        children
        for module in model.modules()
        if isinstance(module, nn.ModuleList | nn.Sequential)
        if len(children := list(module.children())) > 1
        and len({type(child) for child in children}) == 1
        and any(True for _ in children[0].children())  # a row of bare layers is no row of blocks
    ]
    return max(candidates, key=len, default=[])
