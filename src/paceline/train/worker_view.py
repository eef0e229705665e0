"""A worker's rank and device, and what its loop logs and keeps."""

from contextlib import AbstractContextManager
from typing import Any

import torch

from paceline.comm.groups import Groups
from paceline.train.monitor.telemetry import Telemetry
from paceline.train.state.kept_objects import KeptObjects, Stateful
from paceline.train.stepper import Stepper


class WorkerView:
    """The part of a trainer that a user's loop needs beside its steps."""

    _groups: Groups
    _telemetry: Telemetry
    _kept: KeptObjects
    _stepper: Stepper

    @property
    def rank(self) -> int:
        """This worker's number, from 0. It may change when the workers regroup."""
        return self._groups.placement.rank

    @property
    def workers(self) -> int:
        """Number of workers that train now."""
        return self._groups.placement.workers

    @property
    def is_main(self) -> bool:
        """Whether this is worker 0."""
        return self.rank == 0

    @property
    def device(self) -> torch.device:
        """This worker's device."""
        return self._groups.device

    @property
    def steps(self) -> int:
        """Number of steps of this training; it falls when the batch grows by the noise."""
        return self._stepper.batches.steps

    def print(self, *values: Any, **settings: Any) -> None:
        """Print on worker 0 only, as the built-in `print`."""
        if self.is_main:
            print(*values, **settings)

    def log(self, **metrics: float | torch.Tensor) -> None:
        """Record metrics after the last step: numbers or scalar tensors, which are not waited for.

        They are averaged over the workers, weighted by the samples of each local batch. All workers
        log the same names. `watch`, the report and all listeners show them.
        """
        self._telemetry.logged.log(metrics)

    def keep(self, name: str, kept: Stateful) -> None:
        """Save an object's `state_dict()` in checkpoints: tensors, numbers, strings, lists, dicts.

        After a resume, this loads the object's state. All workers call it together, before the
        first step, with objects whose state is equal on all workers.
        """
        self._kept.keep(name, kept)

    def averaged(self) -> AbstractContextManager[None]:
        """Return a context manager that loads the averaged weights of `Training(average=…)`.

        `evaluate` and `export` do this themselves. All workers enter it together, between steps.
        """
        return self._stepper.shared_weights()
