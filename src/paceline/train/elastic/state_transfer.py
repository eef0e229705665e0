"""Transfer the whole training state to workers that have none, or an older one."""

from collections.abc import Iterator, Mapping

import torch
import torch.distributed as dist

from paceline.checkpoints.manifest import Contents, TensorForm
from paceline.checkpoints.tensor_files import dtype_name
from paceline.comm.dtensor import local_tensor
from paceline.comm.groups import Groups
from paceline.train.state.training_state import TrainingState

_MESSAGE_BYTES = 64 << 20


def donors_by_receiver(updates: list[int]) -> dict[int, int]:
    """Return the donor of each worker without the newest state, given each worker's updates.

    Receivers are divided evenly among the donors."""
    newest = max(updates)
    donors = [rank for rank, each in enumerate(updates) if each == newest]
    needy = [rank for rank, each in enumerate(updates) if each != newest]
    return {rank: donors[number % len(donors)] for number, rank in enumerate(needy)}


def transfer_state(
    state: TrainingState, groups: Groups, given_by: Mapping[int, int], *, step: int
) -> None:
    """Send or receive the state after a step. All workers call this together."""
    own = groups.placement.rank
    for needy, donor in given_by.items():
        if own == donor:
            _give(state, groups.device, needy, step)
        elif own == needy:
            _take(state, groups.device, donor)


def _give(state: TrainingState, device: torch.device, to: int, step: int) -> None:
    tensors = dict(_tensors(state, device))
    head = Contents(
        step=step,
        values=state.values(),
        tensors={
            name: TensorForm(shape=tuple(each.shape), dtype=dtype_name(each))
            for name, each in tensors.items()
        },
        scalars=state.scalars()(),
    )
    words = head.model_dump_json().encode()
    dist.send(torch.tensor([len(words)], device=device), to)
    dist.send(torch.frombuffer(bytearray(words), dtype=torch.uint8).to(device), to)
    for message in _messages([tensors[name] for name in head.tensors]):
        dist.send(torch.cat([_bytes(each) for each in message]), to)


def _take(state: TrainingState, device: torch.device, donor: int) -> None:
    length = torch.zeros(1, dtype=torch.int64, device=device)
    dist.recv(length, donor)
    words = torch.empty(int(length), dtype=torch.uint8, device=device)
    dist.recv(words, donor)
    head = Contents.model_validate_json(words.cpu().numpy().tobytes())
    state.prepare(head, device)
    tensors = dict(_tensors(state, device))
    for message in _messages([tensors[name] for name in head.tensors]):
        flat = torch.empty(sum(each.nbytes for each in message), dtype=torch.uint8, device=device)
        dist.recv(flat, donor)
        parts = torch.split(flat, [each.nbytes for each in message])
        for each, part in zip(message, parts, strict=True):
            _bytes(each).copy_(part)
    state.kept.received(head)


def _tensors(state: TrainingState, device: torch.device) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield all tensors of a worker that holds the whole state."""
    for stored in state.parallel_model.stored():
        yield f"model/{stored.name}", local_tensor(stored.tensor).detach()
    yield from state.optimizer_tensors()
    for name, tensor in state.kept.tensors():
        yield name, tensor.to(device).contiguous()


def _messages(tensors: list[torch.Tensor]) -> Iterator[list[torch.Tensor]]:
    """Group tensors into messages, because many small messages would be slow."""
    message: list[torch.Tensor] = []
    for each in tensors:
        if message and sum(one.nbytes for one in message) + each.nbytes > _MESSAGE_BYTES:
            yield message
            message = []
        message.append(each)
    if message:
        yield message


def _bytes(tensor: torch.Tensor) -> torch.Tensor:
    """View a contiguous tensor as bytes."""
    return tensor.view(-1).view(torch.uint8) if tensor.ndim else tensor.view(1).view(torch.uint8)
