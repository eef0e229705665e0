"""What a user asks of a study, and the study that follows from it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from paceline.jobs.cluster_run import until_over
from paceline.launch.target import Target
from paceline.schedulers.scheduler import Scheduler
from paceline.specs import Allocation, Kind, PacelineError, Point, Study
from paceline.specs.measurements.study import compares_quality
from paceline.study.first_checkpoint import saved_step
from paceline.study.launchers import ClusterLauncher, LocalLauncher, RunSettings
from paceline.study.points import BATCH, LINK, RATE, check_rate, points, varied, with_larger_batches
from paceline.study.study_folder import StudyFolder
from paceline.testbed import client

_DEFAULT_PARENT = Path("studies")
_DEFAULT_MARGIN, _DEFAULT_STEPS = 0.01, 60


@dataclass(frozen=True)
class ClusterRequest:
    """The cluster that a study runs on."""

    scheduler: Scheduler
    testbed: str | None
    partition: str | None
    allocation: Allocation
    minutes: int | None
    """Time limit per run."""
    assume_shared: bool

    def set_link(self, rate: str) -> None:
        """Set the rate of the testbed's links."""
        assert self.testbed is not None
        for node in client.status(self.testbed).nodes:
            client.link(self.testbed, node.name, rate=rate)


@dataclass(frozen=True, kw_only=True)
class StudyRequest:
    """The options of a study; None and 0 stand for defaults."""

    target: Target
    kind: Kind
    nodes: Sequence[int]
    devices: Sequence[int]
    """Numbers of workers per node."""
    cluster: ClusterRequest | None
    """None: this machine."""
    layout: dict[str, Any]
    layout_options: Sequence[str]
    """Options of `run` that may vary."""
    vary: Sequence[str]
    repeat: int | None
    steps: int | None
    warm_up: int
    margin: float | None
    begin_at: str | None
    """`RUN` or `RUN@STEP`, the checkpoint that each run starts from; None: the beginning."""
    ledger: bool
    at_once: int
    cluster_file: Path | None
    """Predict each point from this file."""
    out: Path | None
    warn: Callable[[str], None]

    def check(self) -> None:
        """Refuse options that do not fit the kind of the study."""
        if not self._compares_quality and self.margin is not None:
            raise PacelineError(
                f"--margin {self.margin:g} needs --kind quality or batch, but the kind is"
                f" {self.kind}",
                fix="leave --margin out, or write --kind quality",
            )
        if self.margin is not None and not 0 < self.margin < 1:
            raise PacelineError(
                f"--margin {self.margin:g} is not between 0 and 1",
                fix="give a fraction: --margin 0.01 is 1 % of the value on one worker",
            )
        if self.begin_at is not None and self.kind != "batch":
            raise PacelineError(
                f"--from {self.begin_at} needs --kind batch, but the kind is {self.kind}",
                fix="leave --from out, or write --kind batch",
            )
        if not self._compares_quality and self._steps <= self.warm_up:
            raise PacelineError(
                f"--steps {self._steps} leaves nothing to measure after --warm-up {self.warm_up}",
                fix=f"give at least --steps {2 * self.warm_up}",
            )

    def begin(self) -> tuple[StudyFolder, LocalLauncher | ClusterLauncher]:
        """Return the study's folder, new or continued, and the launcher of its runs."""
        self.check()
        settings = self._settings()
        launcher = self._launcher(settings)
        for point in self._points:  # refuse invalid points before the first run
            check_rate(point, settings.plan(point).sync)
        name = self.target.run_name
        study = Study(
            name=name,
            train=self.target.file,
            function=self.target.function,
            arguments=self.target.arguments,
            kind=self.kind,
            points=self._points,
            repeat=self.repeat or (5 if self._compares_quality else 3),
            steps=self._steps,
            starts_from=settings.starts_from,
            warm_up=self.warm_up,
            margin=self.margin or _DEFAULT_MARGIN,
            cluster=launcher.name,
        )
        folder = self.out or _DEFAULT_PARENT / f"{name}-{self.kind}"
        return StudyFolder.begun(folder, study), launcher

    @property
    def _compares_quality(self) -> bool:
        return compares_quality(self.kind)

    @property
    def _steps(self) -> int:
        """Steps of each run; 0: as many as the training has."""
        return self.steps or (0 if self._compares_quality else _DEFAULT_STEPS)

    @cached_property
    def _points(self) -> tuple[Point, ...]:
        more = [RATE] if self._compares_quality else []
        if self.cluster is not None and self.cluster.testbed:
            more.append(LINK)
        varying: Mapping[str, Sequence[str]] = varied(
            self.vary, [*self.layout_options, BATCH, *more]
        )
        if self.kind == "batch":
            varying = with_larger_batches(varying)
        if LINK in varying and self.at_once > 1:
            raise PacelineError(
                f"--at-once {self.at_once} was given, but --vary link changes the links for all"
                " runs",
                fix="leave --at-once out",
            )
        return points(self.nodes, self.devices, self.kind, varying)

    def _settings(self) -> RunSettings:
        return RunSettings(
            target=self.target,
            layout=self.layout,
            kind=self.kind,
            steps=self._steps,
            starts_from=None if self.begin_at is None else saved_step(self.begin_at),
            ledger=self.ledger,
            most_devices=max(each.devices_per_node for each in self._points),
            cluster=self.cluster_file,
            warn=self.warn,
        )

    def _launcher(self, settings: RunSettings) -> LocalLauncher | ClusterLauncher:
        if self.cluster is None:
            return LocalLauncher(settings)
        return ClusterLauncher(
            settings,
            self.cluster.scheduler,
            self.cluster.partition,
            self.cluster.allocation,
            self.cluster.minutes,
            watch=until_over,
            set_link=None if self.cluster.testbed is None else self.cluster.set_link,
            assume_shared=self.cluster.assume_shared,
        )
