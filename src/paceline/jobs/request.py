"""A request for a training run, as options or a Python caller state it."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from paceline.jobs.plan_choice import chosen_plan
from paceline.launch.target import Target
from paceline.observe.audience import check_listener
from paceline.specs import Allocation, Container, Job, JobEnvironment, Limits, Plan


@dataclass(frozen=True)
class TrainingRequest:
    """What to train, by which plan, and the settings of its job."""

    target: Target
    plan: Path | None = None
    """Plan file to follow."""
    layout: Mapping[str, Any] = field(default_factory=dict)
    """Fields of the layout, `sync` and `faults` that replace the plan's."""
    saving: Mapping[str, Any] = field(default_factory=dict)
    """Fields of the checkpoint settings that replace the plan's."""
    name: str | None = None
    """Name of the run; by default the target's."""
    runs: str | Path = Path("runs")
    """Parent directory of the run folder, or its URL in an object store."""
    spares: int = 0
    trace_steps: int | None = None
    limits: Limits = field(default_factory=Limits)
    allocation: Allocation = field(default_factory=Allocation)
    environment: JobEnvironment = field(default_factory=JobEnvironment)
    container: Container | None = None
    """Image in which the workers of a cluster run."""
    port: int | None = None
    power_limit_watts: float | None = None
    listeners: tuple[str, ...] = ()
    check: bool = True
    """Whether worker 0 checks the training before the first step."""
    share: bool = False
    """Whether the group can read the run folder."""

    def job(self) -> Job:
        """Return the job on one node, with the working directory and the Python of this process."""
        for listener in self.listeners:
            check_listener(listener)
        return Job(
            name=self.name or self.target.run_name,
            train=self.target.file,
            function=self.target.function,
            arguments=self.target.arguments,
            trace_steps=self.trace_steps,
            spares=self.spares,
            limits=self.limits,
            allocation=self.allocation,
            environment=self.environment,
            container=self.container,
            port=self.port,
            power_limit_watts=self.power_limit_watts,
            folder=Path.cwd(),
            python=Path(sys.executable),
            listeners=self.listeners,
            share=self.share,
            check=self.check,
        )

    def chosen_plan(self, workers: int | None, default_workers: int) -> Plan:
        """Return the plan for a number of workers; see `plan_choice.chosen_plan`."""
        return chosen_plan(self.plan, workers, default_workers, self.layout, self.saving)
