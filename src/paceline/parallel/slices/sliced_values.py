"""Let the user's code compute with sliced values as if they were full tensors.

Between a column-sliced and a row-sliced layer, values are DTensors, which have the shapes of full
tensors. This module intercepts torch functions to add what DTensor lacks for code unaware of it.
"""

from typing import Any

import torch
import torch.distributed as dist
from torch.autograd.graph import GradientEdge, get_gradient_edge
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor
from torch.overrides import TorchFunctionMode

from paceline.comm.torch_internals import OpOverload
from paceline.parallel.slices.functions import COMPUTED_IN_SLICES, NOT_COMPUTED, OWN_FORMS
from paceline.parallel.slices.sliced_tensors import Fused, everything_whole, spread, whole

_BACKWARD = {torch.Tensor.backward, torch.autograd.backward, torch.autograd.grad}


class SlicedValues(TorchFunctionMode):
    """A mode in which torch functions accept sliced and full values together.

    It handles slices over `mesh` only; parameters sharded over other workers are left alone.
    """

    def __init__(self, mesh: DeviceMesh) -> None:
        super().__init__()
        self._mesh = mesh

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Run a function as if the sliced values among its arguments were full tensors."""
        kwargs = kwargs or {}
        if function in _BACKWARD:
            return self._backward(function, args, kwargs)
        # An OpOverload comes from a mode below autograd, such as selective recomputation.
        passes = isinstance(function, OpOverload) or _name(function) in NOT_COMPUTED
        if passes or not self._any_sliced((*args, *kwargs.values())):
            return function(*args, **kwargs)
        result = _result(function, args, kwargs, self._mesh)
        # Usually a loss: the code after it is the same on all workers.
        return whole(result) if isinstance(result, DTensor) and result.ndim == 0 else result

    def _any_sliced(self, values: Any) -> bool:
        """Whether any value is sliced, including values in lists such as the argument of
        `torch.cat`."""
        for value in values:
            if isinstance(value, DTensor | Fused):
                if value.device_mesh == self._mesh:
                    return True
            elif isinstance(value, tuple | list) and self._any_sliced(value):
                return True
        return False

    def _backward(self, function: Any, args: Any, kwargs: Any) -> Any:
        """Run backward inside this mode, because recomputation calls the user's code again.

        A function called with tensors leaves the mode; called with gradient edges, it does not.
        """
        edges, rest, kwargs = _edges(args[0]), list(args[1:]), dict(kwargs)
        if edges is None or kwargs.get("materialize_grads"):
            return function(*args, **kwargs)
        if function is torch.autograd.grad:
            rest[0] = _edges(rest[0])
        elif kwargs.get("inputs") is not None:
            kwargs["inputs"] = _edges(kwargs["inputs"])
        if "gradient" in kwargs:  # as Tensor.backward calls it
            kwargs["grad_tensors"] = kwargs.pop("gradient")
        run = function if function is torch.autograd.grad else torch.autograd.backward
        with self:
            return run(edges, *rest, **kwargs)


def _edges(tensors: Any) -> tuple[GradientEdge, ...] | None:
    """Return the gradient edges of tensors; None if one of them needs no gradient."""
    nest = tensors if isinstance(tensors, tuple | list) else (tensors,)
    if any(isinstance(each, torch.Tensor) and not each.requires_grad for each in nest):
        return None
    return tuple(
        get_gradient_edge(each) if isinstance(each, torch.Tensor) else each for each in nest
    )


def _result(function: Any, args: Any, kwargs: Any, mesh: DeviceMesh) -> Any:
    for form in (_made_alike, _taken_apart, _of_our_own, _in_slices, _in_place):
        result = form(function, args, kwargs, mesh)
        if result is not NotImplemented:
            return result
    return function(*everything_whole(args), **everything_whole(kwargs))


def _made_alike(function: Any, args: Any, kwargs: Any, mesh: DeviceMesh) -> Any:
    """Make a new tensor of another's dtype and device; the other's value does not matter."""
    if not function.__name__.startswith("new_") or not isinstance(args[0], DTensor | Fused):
        return NotImplemented
    kind = torch.empty((), dtype=args[0].dtype, device=args[0].device)
    return function(kind, *args[1:], **kwargs)


def _taken_apart(function: Any, args: Any, kwargs: Any, mesh: DeviceMesh) -> Any:
    if not args or not isinstance(args[0], Fused):
        return NotImplemented
    return args[0].taken_apart(function, args[1:], kwargs)


def _of_our_own(function: Any, args: Any, kwargs: Any, mesh: DeviceMesh) -> Any:
    return OWN_FORMS[function](*args, **kwargs) if function in OWN_FORMS else NotImplemented


def _in_slices(function: Any, args: Any, kwargs: Any, mesh: DeviceMesh) -> Any:
    changes_whole = _changes_its_argument(function, kwargs) and not isinstance(args[0], DTensor)
    if (
        changes_whole
        or "out" in kwargs
        or _name(function).removesuffix("_") not in COMPUTED_IN_SLICES
    ):
        return NotImplemented
    args = _all_spread(args, mesh)
    kwargs = {key: _all_spread(value, mesh) for key, value in kwargs.items()}
    try:
        return function(*args, **kwargs)
    except (dist.DistError, torch.OutOfMemoryError):  # on this worker alone
        raise
    except Exception:  # on all: a view that cuts across slices, or an error in the user's code
        return NotImplemented


def _all_spread(argument: Any, mesh: DeviceMesh) -> Any:
    # Done by hand, because pytree takes longer than most functions.
    if isinstance(argument, torch.Tensor):
        return spread(argument, mesh)
    if type(argument) in (tuple, list):
        return type(argument)(_all_spread(each, mesh) for each in argument)
    return argument


def _in_place(function: Any, args: Any, kwargs: Any, mesh: DeviceMesh) -> Any:
    """Run an in-place function on the gathered value."""
    if isinstance(kwargs.get("out"), DTensor | Fused):
        raise NotImplementedError(f"{function.__name__} writes with out= into a sliced value")
    if not _changes_its_argument(function, kwargs):
        return NotImplemented
    changed, rest = args[0], everything_whole((args[1:], kwargs))
    if not isinstance(changed, DTensor):
        return function(changed, *rest[0], **rest[1])
    copy = whole(changed).clone()
    function(copy, *rest[0], **rest[1])
    return changed.copy_(spread(copy, mesh).redistribute(placements=changed.placements))


def _name(function: Any) -> str:
    """Return `view` for the function of `value.view(…)`, and `shape` for that of `value.shape`."""
    name: str = function.__name__
    return function.__self__.__name__ if name == "__get__" else name


def _changes_its_argument(function: Any, kwargs: Any) -> bool:
    name = function.__name__
    in_place = name.endswith("_") and not name.endswith("__")
    return in_place or name == "__setitem__" or kwargs.get("inplace") is True
