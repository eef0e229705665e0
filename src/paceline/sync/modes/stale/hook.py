"""Parameter servers with a staleness bound: bulk synchronous, stale synchronous, asynchronous.

Some workers each serve a part of the weights (`server.py`). A worker sends them its gradient in
every step and continues with the weights of their answers. The staleness bound s determines how
long a server holds an answer back: a worker that has taken c steps continues when all have taken c
- s (stale synchronous parallel; Ho et al., NeurIPS 2013), and without a bound at once
(asynchronous; Downpour SGD, Dean et al., NeurIPS 2012). With s = 0 the servers take one step with
the mean of all: a correct, slow reference for synchronous training.

With s > 0 every gradient is a step of the optimizer as it arrives, at a learning rate divided by
the number of workers: one gradient of each worker then moves plain SGD as far as one synchronous
step, and Adam and weight decay about as far. Momentum and Adam's averages span the same number of
steps, but fewer rounds. Each worker clips its own gradient before it sends it, with any s.

A checkpoint holds the servers' weights and optimizer state in the format of synchronous training,
so any number of workers can continue, in any mode.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any

import torch

from paceline.comm.dtensor import is_sharded, local_tensor
from paceline.comm.torch_internals import foreach_copy_
from paceline.specs import PacelineError
from paceline.sync.buckets import LocalParameter, even_buckets
from paceline.sync.hook import Hook, HookContext
from paceline.sync.modes.stale import Stale
from paceline.sync.modes.stale.server import Arrival, Part, Server, settings_of
from paceline.sync.modes.stale.server_messages import (
    ANSWER,
    GOODBYE,
    PUSH,
    Push,
    packed_states,
    room_for_answer,
    unpacked_states,
    weights_in,
)

_BY_ELEMENT = {
    "ASGD", "Adadelta", "Adagrad", "Adam", "AdamW", "Adamax", "NAdam", "RAdam", "RMSprop", "Rprop",
    "SGD",
}  # fmt: skip
"""Optimizers of torch that treat every element of a parameter separately."""


class StaleWeights(Hook):
    """Sends gradients to parameter servers and takes weights from them."""

    settings: Stale
    replicas_differ = False

    def __init__(self, settings: Stale, context: HookContext) -> None:
        super().__init__(settings, context)
        learning = context.learning
        _check_optimizer(settings, context.optimizer, learning)
        self._buckets = even_buckets(learning, min(settings.servers, context.transport.workers))
        self._server: Server | None = None
        self._begun = False
        self._step = 0
        self._arriving: Future[list[torch.Tensor]] | None = None

    @property
    def arrivals(self) -> list[Arrival]:
        """The last gradients that this worker's server received, in their order."""
        return list(self._server.part.arrivals) if self._server else []

    def before_forward(self, step: int) -> None:
        """Load the weights of the servers' answers; the servers begin with the model's weights."""
        if not self._begun:
            self._begin(steps_taken=step - 1)
        self._land()

    @torch.no_grad()
    def before_step(self, step: int) -> bool:
        """Send the gradient; the servers update the weights."""
        self._step = step
        settings = settings_of(self.context.optimizer)
        pushes = [
            Push(step, settings, bucket.flat([_gradient(each) for each in bucket.parameters]).cpu())
            for bucket in self._buckets
        ]
        self._arriving = self.context.lane.begin(lambda: self._push_and_pull(pushes))
        # The servers step instead; a schedule would warn that this optimizer does not.
        vars(self.context.optimizer)["_opt_called"] = True
        return False

    def consensus(self) -> list[torch.Tensor] | None:
        """Return the servers' weights after the last step of all workers."""
        if not self._begun:
            return None
        self._land()
        step = self._step
        flats = self._from_servers(
            lambda part: part.weights_after(step),
            [torch.empty_like(bucket.weights(), device="cpu") for bucket in self._buckets],
        )
        return self.context.in_order(
            (bucket, flat.to(bucket.locals[0].device))
            for bucket, flat in zip(self._buckets, flats, strict=True)
        )

    def conclude(self) -> None:
        """Load the servers' weights."""
        if (common := self.consensus()) is not None:
            self.context.load(common)

    def drain(self) -> None:
        """Take the last answer and the servers' optimizer state, because all workers write a
        checkpoint together."""
        if self._begun:
            self._land()
            self._take_over_state()

    def close(self) -> None:
        """Sign off at the servers; wait until all workers have signed off at this worker's."""
        if self._begun:
            self._land()
            lane = self.context.lane
            lane.finish(lane.begin(self._say_goodbye))
            if self._server is not None:
                self._server.join()

    def _begin(self, *, steps_taken: int) -> None:
        """Start serving from the current weights and optimizer state, restored or new."""
        context, transport = self.context, self.context.transport
        self._begun, self._step = True, steps_taken
        if transport.rank < len(self._buckets):
            bucket = self._buckets[transport.rank]
            part = Part(
                bucket,
                context.optimizer,
                workers=transport.workers,
                staleness=self.settings.staleness,
                steps_taken=steps_taken,
            )
            self._server = Server(part, transport, settings_of(context.optimizer))
        context.optimizer.state.clear()  # the servers have it now

    def _push_and_pull(self, pushes: Sequence[Push]) -> list[torch.Tensor]:
        """Send gradients to the servers and return their weights, as buckets."""
        transport, server = self.context.transport, self._server
        # First, so that no worker waits for this one while this one waits for others.
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
        answers = self.context.lane.finish(self._arriving)
        self._arriving = None
        for bucket, answer in zip(self._buckets, answers, strict=True):
            foreach_copy_(bucket.locals, bucket.views(answer.to(bucket.locals[0].device)))

    def _from_servers(
        self, own: Callable[[Part], torch.Tensor], room: Sequence[torch.Tensor]
    ) -> list[torch.Tensor]:
        """Return the answer of each server to all workers; a collective call."""
        transport, server = self.context.transport, self._server

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

        return self.context.lane.finish(self.context.lane.begin(exchange))

    def _say_goodbye(self) -> None:
        transport = self.context.transport
        settings = settings_of(self.context.optimizer)
        messages = {
            number: Push(GOODBYE, settings, torch.zeros_like(bucket.weights())).packed()
            for number, bucket in enumerate(self._buckets)
            if number != transport.rank
        }
        transport.swap(messages, {}, sent_tag=PUSH)

    def _take_over_state(self) -> None:
        """Copy the state of the servers' optimizers into this worker's."""
        packed = (
            packed_states(self._server.part.state_after(self._step))
            if self._server
            else torch.empty(0)
        )
        sizes = self._from_servers(
            lambda part: torch.tensor([len(packed)]),
            [torch.zeros(1, dtype=torch.int64) for _ in self._buckets],
        )
        rooms = [torch.empty(int(size), dtype=torch.uint8) for size in sizes]
        received = self._from_servers(lambda part: packed, rooms)
        for bucket, message in zip(self._buckets, received, strict=True):
            for of, state in zip(bucket.parameters, unpacked_states(message), strict=True):
                if state:
                    self.context.optimizer.state[of.parameter] = {
                        key: _placed(value, of) for key, value in state.items()
                    }


def _gradient(of: LocalParameter) -> torch.Tensor:
    """Return this worker's part of a gradient; zeros if the model did not use the parameter."""
    gradient = of.parameter.grad
    if gradient is None:
        return torch.zeros_like(of.local)
    return local_tensor(gradient)


def _placed(value: Any, of: LocalParameter) -> Any:
    """Return a tensor in the same placement as the parameter."""
    if not torch.is_tensor(value) or not is_sharded(of.parameter):
        return value
    if value.shape != of.local.shape:
        return value
    placed: Any = torch.empty_like(of.parameter.detach(), dtype=value.dtype)
    placed.to_local().copy_(value)
    return placed


def _check_optimizer(
    settings: Stale, optimizer: torch.optim.Optimizer, learning: Sequence[LocalParameter]
) -> None:
    name = type(optimizer).__name__
    if "param_groups" not in vars(optimizer):
        raise PacelineError(
            f"--sync stale cannot give a server an optimizer like {name}, which has no"
            " parameter groups of its own, but wraps another optimizer",
            fix="give Training(optimizer=…) the wrapped optimizer, or use another --sync",
        )
    if settings.staleness != 0 and any("lr" not in group for group in optimizer.param_groups):
        raise PacelineError(
            f"{name} has no `lr`, which --sync stale divides by the number of workers",
            fix="use stale:staleness=0, or an optimizer with a learning rate",
        )
    sharded = any(is_sharded(each.parameter) for each in learning)
    if sharded and name not in _BY_ELEMENT:
        raise PacelineError(
            f"--sync stale keeps shards of parameters on servers, where {name} would see parts of"
            " parameters",
            fix="use --shards 1, an optimizer such as AdamW, or another --sync",
        )
