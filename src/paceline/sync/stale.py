"""Servers whose weights may be some steps old: BSP, stale synchronous, asynchronous.

Some workers keep a part of the weights each, for all (`server.py`). A worker sends them its
gradient in every step and goes on with the weights that they answer with. How long an answer is
held back is the staleness s: who has taken c steps goes on when all have taken c - s of them (stale
synchronous parallel; Ho et al., NeurIPS 2013), and without any s at once (asynchronous; Downpour
SGD, Dean et al., NeurIPS 2012). With s = 0 the servers take one step with the mean of all: a
reference for what synchronous training comes to, right, but not meant to be fast.

With s > 0 every gradient is a step of the optimizer as it arrives, at a learning rate divided by
the number of workers: a round of all workers then moves plain SGD as far as one synchronous step
would, and Adam and weight decay about as far. What an optimizer remembers from step to step
(momentum, the averages of Adam) lasts for as many steps as ever, which are fewer rounds. Where
gradients are clipped, each worker clips its own before it sends it, with any s.

What a checkpoint holds is what the servers have: weights and the optimizer's state, in the form in
which synchronous training has them, so that any number of workers can go on, in any mode.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any

import torch

from paceline.comm.dtensor import local_tensor
from paceline.comm.torch_internals import foreach_copy_
from paceline.specs import PacelineError
from paceline.sync.flat import rows_of
from paceline.sync.messages import (
    ANSWER,
    GOODBYE,
    PUSH,
    Push,
    packed_states,
    room_for_answer,
    unpacked_states,
    weights_in,
)
from paceline.sync.mode import Bound, Held, Mode
from paceline.sync.server import Arrival, Part, Server, settings_of

_BY_ELEMENT = {
    "ASGD", "Adadelta", "Adagrad", "Adam", "AdamW", "Adamax", "NAdam", "RAdam", "RMSprop", "Rprop",
    "SGD",
}  # fmt: skip
"""Optimizers of torch that treat every number of a parameter by itself."""


class StaleWeights(Mode):
    """A worker that sends gradients to servers and takes weights from them."""

    replicas_differ = False

    def __init__(self, bound: Bound) -> None:
        super().__init__(bound)
        learning = bound.learning
        _check_optimizer(bound, learning)
        self._rows = rows_of(learning, min(bound.sync.servers, bound.transport.workers))
        self._server: Server | None = None
        self._begun = False
        self._step = 0
        self._arriving: Future[list[torch.Tensor]] | None = None

    @property
    def arrivals(self) -> list[Arrival]:
        """The last gradients that came to this worker's server, in their order."""
        return list(self._server.part.arrivals) if self._server else []

    def before_forward(self, step: int) -> None:
        """Take the weights that the servers answered with; they begin with those of the model."""
        if not self._begun:
            self._begin(steps_taken=step - 1)
        self._land()

    @torch.no_grad()
    def before_step(self, step: int) -> bool:
        """Send the gradient; the servers update the weights."""
        self._step = step
        settings = settings_of(self.bound.optimizer)
        pushes = [
            Push(step, settings, row.flat([_gradient(each) for each in row.held]).cpu())
            for row in self._rows
        ]
        self._arriving = self.bound.lane.begin(lambda: self._exchange(pushes))
        # A schedule would warn that it goes on though the optimizer does not: elsewhere it does.
        vars(self.bound.optimizer)["_opt_called"] = True
        return False

    def consensus(self) -> list[torch.Tensor] | None:
        """What the servers have after the last step of all."""
        if not self._begun:
            return None
        self._land()
        step = self._step
        flats = self._from_servers(
            lambda part: part.weights_after(step),
            [torch.empty_like(row.weights(), device="cpu") for row in self._rows],
        )
        found = {
            id(each): part
            for row, flat in zip(self._rows, flats, strict=True)
            for each, part in zip(row.held, row.views(flat.to(row.locals[0].device)), strict=True)
        }
        return [found.get(id(each), each.local.detach()) for each in self.bound.held]

    @torch.no_grad()
    def conclude(self) -> None:
        """Take what the servers have."""
        if (common := self.consensus()) is not None:
            foreach_copy_([each.local for each in self.bound.held], common)

    def drain(self) -> None:
        """Take the last answer, and what the servers' optimizers keep: all workers write a
        checkpoint together."""
        if self._begun:
            self._land()
            self._take_over_state()

    def close(self) -> None:
        """Say goodbye to the servers, and wait for all to do so at one's own."""
        if self._begun:
            self._land()
            lane = self.bound.lane
            lane.finish(lane.begin(self._say_goodbye))
            if self._server is not None:
                self._server.join()

    def _begin(self, *, steps_taken: int) -> None:
        """Serve, from the weights and the optimizer's state as they are, restored or new."""
        bound, transport = self.bound, self.bound.transport
        self._begun, self._step = True, steps_taken
        if transport.rank < len(self._rows):
            row = self._rows[transport.rank]
            part = Part(
                row,
                bound.optimizer,
                workers=transport.workers,
                staleness=bound.sync.staleness,
                steps_taken=steps_taken,
            )
            self._server = Server(part, transport, settings_of(bound.optimizer))
        bound.optimizer.state.clear()  # the servers have it now

    def _exchange(self, pushes: Sequence[Push]) -> list[torch.Tensor]:
        """Gradients to the servers, weights from them; both as rows."""
        transport, server = self.bound.transport, self._server
        # First, so that no other worker waits for this one while this one waits for others.
        if server is not None:
            server.part.push(transport.rank, pushes[transport.rank])
        answers = {
            number: room_for_answer(push.gradient)
            for number, push in enumerate(pushes)
            if number != transport.rank
        }
        transport.swap(
            {number: pushes[number].packed() for number in answers},
            answers,
            sent_tag=PUSH,
            received_tag=ANSWER,
        )
        if server is not None:
            answers[transport.rank] = server.part.pull(transport.rank)
        return [weights_in(answers[number]) for number in range(len(pushes))]

    @torch.no_grad()
    def _land(self) -> None:
        if self._arriving is None:
            return
        answers = self.bound.lane.finish(self._arriving)
        self._arriving = None
        for row, answer in zip(self._rows, answers, strict=True):
            foreach_copy_(row.locals, row.views(answer.to(row.locals[0].device)))

    def _from_servers(
        self, own: Callable[[Part], torch.Tensor], room: Sequence[torch.Tensor]
    ) -> list[torch.Tensor]:
        """What each server says of its part to all workers, which call this together."""
        transport, server = self.bound.transport, self._server

        def exchange() -> list[torch.Tensor]:
            found = dict(enumerate(room))
            sent: dict[int, torch.Tensor] = {}
            if server is not None:
                mine = found[transport.rank] = own(server.part)
                others = (rank for rank in range(transport.workers) if rank != transport.rank)
                sent = dict.fromkeys(others, mine)
            transport.swap(
                sent, {rank: tensor for rank, tensor in found.items() if rank != transport.rank}
            )
            return [found[number] for number in range(len(room))]

        return self.bound.lane.finish(self.bound.lane.begin(exchange))

    def _say_goodbye(self) -> None:
        transport = self.bound.transport
        settings = settings_of(self.bound.optimizer)
        messages = {
            number: Push(GOODBYE, settings, torch.zeros_like(row.weights())).packed()
            for number, row in enumerate(self._rows)
            if number != transport.rank
        }
        transport.swap(messages, {}, sent_tag=PUSH)

    def _take_over_state(self) -> None:
        """The state of the servers' optimizers as that of this worker's."""
        packed = (
            packed_states(self._server.part.state_after(self._step))
            if self._server
            else torch.empty(0)
        )
        sizes = self._from_servers(
            lambda part: torch.tensor([len(packed)]),
            [torch.zeros(1, dtype=torch.int64) for _ in self._rows],
        )
        rooms = [torch.empty(int(size), dtype=torch.uint8) for size in sizes]
        received = self._from_servers(lambda part: packed, rooms)
        for row, message in zip(self._rows, received, strict=True):
            for of, state in zip(row.held, unpacked_states(message), strict=True):
                if state:
                    self.bound.optimizer.state[of.parameter] = {
                        key: _placed(value, of) for key, value in state.items()
                    }


def _gradient(of: Held) -> torch.Tensor:
    """What this worker holds of a gradient; zeros where the model did not use the parameter."""
    gradient = of.parameter.grad
    if gradient is None:
        return torch.zeros_like(of.local)
    return local_tensor(gradient)


def _placed(value: Any, of: Held) -> Any:
    """A tensor that lies as the parameter does."""
    if not torch.is_tensor(value) or not hasattr(of.parameter, "to_local"):
        return value
    if value.shape != of.local.shape:
        return value
    placed: Any = torch.empty_like(of.parameter.detach(), dtype=value.dtype)
    placed.to_local().copy_(value)
    return placed


def _check_optimizer(bound: Bound, learning: Sequence[Held]) -> None:
    optimizer = bound.optimizer
    name = type(optimizer).__name__
    if "param_groups" not in vars(optimizer):
        raise PacelineError(
            f"--sync stale cannot give a server an optimizer like {name}, which has no groups of"
            " parameters of its own, but passes on those of another",
            fix="give Training(optimizer=…) the optimizer inside it, or use another --sync",
        )
    if bound.sync.staleness != 0 and any("lr" not in group for group in optimizer.param_groups):
        raise PacelineError(
            f"{name} has no `lr`, which --sync stale divides by the number of workers",
            fix="use stale:staleness=0, or an optimizer with a learning rate",
        )
    sharded = any(hasattr(each.parameter, "to_local") for each in learning)
    if sharded and name not in _BY_ELEMENT:
        raise PacelineError(
            f"--sync stale keeps shards of parameters on servers, where {name} would see less than"
            " whole parameters",
            fix="use --shards 1, an optimizer such as AdamW, or another --sync",
        )
