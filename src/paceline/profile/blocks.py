"""The repeated blocks of a model: what is sharded, staged, and computed again, as a unit."""

from torch import nn


def rows_of_blocks(model: nn.Module) -> list[list[nn.Module]]:
    """Every list or sequence of the model that holds several modules of one class with layers.

    Transformers and residual networks are written as such rows; finding them needs no tracing
    and no word from the user. A row inside a block of another row is part of that block.
    """
    rows: list[list[nn.Module]] = []
    inside: set[int] = set()
    for module in model.modules():  # from the outside in
        if id(module) in inside or not isinstance(module, nn.ModuleList | nn.Sequential):
            continue
        children = list(module.children())
        alike = len(children) > 1 and len({type(child) for child in children}) == 1
        if alike and any(True for _ in children[0].children()):  # bare layers are no blocks
            rows.append(children)
            inside |= {id(part) for child in children for part in child.modules()}
    return rows


def blocks(model: nn.Module) -> list[nn.Module]:
    """All blocks of the model, row after row; none where it has no rows."""
    return [block for row in rows_of_blocks(model) for block in row]
