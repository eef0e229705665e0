"""Weights & Biases, offline: writes files that `wandb sync` can upload later."""

import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from paceline.observe.digest import Observation
from paceline.observe.listener import ListenerKind
from paceline.observe.listeners._forward_only import Once, identity
from paceline.specs import Run


class Wandb:
    """Writes one offline W&B run, with the step as its axis.

    Offline runs cannot be continued, so a follower that restarts writes the whole run again and
    replaces the earlier files.
    """

    def __init__(self, run: Run, place: str | None) -> None:
        os.environ["WANDB_MODE"] = "offline"
        os.environ["WANDB_ERROR_REPORTING"] = "false"
        import wandb  # noqa: PLC0415

        folder = Path(place).absolute() if place else run.path
        folder.mkdir(parents=True, exist_ok=True)
        for before in (folder / "wandb").glob(f"offline-run-*-{identity(run)}"):
            shutil.rmtree(before)
        self._run: Any = wandb.init(
            project=run.job.name,
            id=identity(run),
            name=run.name,
            dir=str(folder),
            mode="offline",
            # Metrics of this process and its environment say nothing about the workers.
            settings=wandb.Settings(
                silent=True,
                console="off",
                disable_git=True,
                save_code=False,
                x_disable_stats=True,
                x_disable_meta=True,
                x_disable_machine_info=True,
            ),
        )
        self._run.define_metric("*", step_metric="step")
        self.where = f"{folder / 'wandb'}; `wandb sync` sends it"
        self._once = Once()
        self._exit_code = 0

    def take(self, news: Sequence[Observation]) -> None:
        """Log metrics under their names; events go to the run's notes."""
        for seen in self._once.new(news):
            if seen.kind == "ended":
                self._exit_code = int(seen.note == "failed")
            self._run.log({**seen.figures, "step": seen.step, "_timestamp": seen.time})
        if self._once.notes != (self._run.notes or ""):
            self._run.notes = self._once.notes

    def close(self) -> None:
        """Complete the files."""
        self._run.finish(exit_code=self._exit_code)


LISTENER = ListenerKind(package="wandb", open=Wandb)
