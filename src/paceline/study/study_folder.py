"""A study's folder: its settings, and a run's folder for each measurement."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from paceline.report import RunReader, RunState
from paceline.specs import Job, PacelineError, Plan, Point, Run, Study
from paceline.specs.measurements.study import compares_quality
from paceline.specs.owned_files import check_owned_folder, make_folder, write_owned
from paceline.study.points import key

States = dict[str, list[tuple[Run, RunState]]]
"""Runs of each repetition by its name, the oldest first."""
_SAME = ("train", "function", "arguments", "kind", "steps", "starts_from", "warm_up", "cluster")


@dataclass(frozen=True)
class Repetition:
    """One measurement of a point."""

    point: Point
    number: int

    @property
    def name(self) -> str:
        """Name of its run."""
        return f"{key(self.point)}-r{self.number}"


@dataclass(frozen=True)
class StudyFolder:
    """A study's folder and its contents."""

    path: Path

    @property
    def study_file(self) -> Path:
        """The file with the study's settings."""
        return self.path / "study.toml"

    @property
    def runs(self) -> Path:
        """The folder of the runs."""
        return self.path / "runs"

    @property
    def study(self) -> Study:
        """The study's settings, read from the folder."""
        return Study.read(self.study_file)

    @classmethod
    def is_one(cls, path: Path) -> bool:
        """Return whether a folder is a study's."""
        return cls(path).study_file.is_file()

    @classmethod
    def begun(cls, path: Path, study: Study) -> "StudyFolder":
        """Create the folder, or continue one: points and repetitions may be added, but the other
        settings must be the same."""
        folder = cls(path.absolute())
        if folder.study_file.exists():
            check_owned_folder(folder.path)
            before = Study.read(folder.study_file, own=True)
            for name in _SAME:
                had, asked = getattr(before, name), getattr(study, name)
                if had != asked:
                    raise PacelineError(
                        f"{path} has a study with {name} = {had}, but {name} = {asked} was asked"
                        " for",
                        fix="give another folder with --out DIR, or the same settings to continue",
                    )
            new = [point for point in study.points if point not in before.points]
            study = before.model_copy(
                update={
                    "points": (*before.points, *new),
                    "repeat": max(before.repeat, study.repeat),
                    "margin": study.margin,
                }
            )
        folder.path.parent.mkdir(parents=True, exist_ok=True)
        make_folder(folder.path, share=False, exist_ok=True)
        make_folder(folder.runs, exist_ok=True)
        write_owned(folder.study_file, study.to_toml())
        return folder

    def repetitions(self) -> Iterator[Repetition]:
        """Yield all repetitions: every point once before any is repeated, in alternating order,
        so that slow drift of the machine affects all points alike."""
        study = self.study
        for number in range(study.repeat):
            for point in study.points[:: -1 if number % 2 else 1]:
                yield Repetition(point, number + 1)

    def new_run(self, repetition: Repetition, job: Job, plan: Plan) -> Run:
        """Create the folder of a run."""
        named: dict[str, str | int] = {"name": repetition.name}
        if compares_quality(self.study.kind):
            named["seed_plus"] = repetition.number - 1
        return Run.create(self.runs, job.model_copy(update=named), plan)

    def states(self) -> States:
        """Return the runs of each repetition by its name, the oldest first."""
        found: States = {}
        for path in sorted(self.runs.iterdir()):
            run = Run(path)
            # A run that was cut off while its folder was created has no data.
            if run.job_file.is_file() and run.plan_file.is_file():
                state = RunReader(run).refresh()
                found.setdefault(state.job.name, []).append((run, state))
        return found


def attempts(study: Study, point: Point, states: States) -> list[list[tuple[Run, RunState]]]:
    """Return the runs of a point, by repetition."""
    names = [Repetition(point, number + 1).name for number in range(study.repeat)]
    return [states.get(name, []) for name in names]


def finished(study: Study, point: Point, states: States) -> list[tuple[Run, RunState]]:
    """Return one finished run of each repetition that has one."""
    return [
        found
        for repeated in attempts(study, point, states)
        for found in [each for each in repeated if each[1].status == "finished"][:1]
    ]
