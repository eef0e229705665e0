"""A study is a folder: what is measured, and a run's folder for each measurement."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from paceline.report import RunReader, RunState
from paceline.specs import Job, PacelineError, Plan, Point, Run, Study
from paceline.study.points import key

States = dict[str, list[tuple[Run, RunState]]]
"""The runs there are of each repetition, by its name, the oldest first."""
_SAME = ("train", "function", "kind", "steps", "warm_up", "cluster")


@dataclass(frozen=True)
class Repetition:
    """One measurement of a point."""

    point: Point
    number: int

    @property
    def name(self) -> str:
        """Of its run."""
        return f"{key(self.point)}-r{self.number}"


@dataclass(frozen=True)
class StudyFolder:
    """The folder of a study and what is in it."""

    path: Path

    @property
    def study_file(self) -> Path:
        """What is measured."""
        return self.path / "study.toml"

    @property
    def runs(self) -> Path:
        """The runs' folders."""
        return self.path / "runs"

    @property
    def study(self) -> Study:
        """Read from the folder."""
        return Study.read(self.study_file)

    @classmethod
    def is_one(cls, path: Path) -> bool:
        """Whether a folder is a study's."""
        return cls(path).study_file.is_file()

    @classmethod
    def begun(cls, path: Path, study: Study) -> "StudyFolder":
        """A new folder, or one that has a part of this study already: it may get more points and
        repetitions, but what it has must have been measured in the same way."""
        folder = cls(path.absolute())
        if folder.study_file.exists():
            before = folder.study
            for name in _SAME:
                had, asked = getattr(before, name), getattr(study, name)
                if had != asked:
                    raise PacelineError(
                        f"{path} has a study with {name} = {had}, but {name} = {asked} was asked"
                        " for",
                        fix="give another folder with --out DIR, or the same settings to go on",
                    )
            new = [point for point in study.points if point not in before.points]
            study = before.model_copy(
                update={
                    "points": (*before.points, *new),
                    "repeat": max(before.repeat, study.repeat),
                    "margin": study.margin,
                }
            )
        folder.runs.mkdir(parents=True, exist_ok=True)
        study.write(folder.study_file)
        return folder

    def repetitions(self) -> Iterator[Repetition]:
        """All that are wanted, every point once before any is measured again, there and back:
        what changes slowly meanwhile touches all points alike."""
        study = self.study
        for number in range(study.repeat):
            for point in study.points[:: -1 if number % 2 else 1]:
                yield Repetition(point, number + 1)

    def new_run(self, repetition: Repetition, job: Job, plan: Plan) -> Run:
        """A folder for a measurement that is about to begin."""
        named: dict[str, str | int] = {"name": repetition.name}
        if self.study.kind == "quality":
            named["seed_plus"] = repetition.number - 1
        return Run.create(self.runs, job.model_copy(update=named), plan)

    def states(self) -> States:
        """The runs there are of each repetition, by its name, the oldest first."""
        found: States = {}
        for path in sorted(self.runs.iterdir()):
            run = Run(path)
            # A run that was cut off while its folder was made has nothing to say.
            if run.job_file.is_file() and run.plan_file.is_file():
                state = RunReader(run).refresh()
                found.setdefault(state.job.name, []).append((run, state))
        return found


def attempts(study: Study, point: Point, states: States) -> list[list[tuple[Run, RunState]]]:
    """The runs there are of a point, by repetition."""
    names = [Repetition(point, number + 1).name for number in range(study.repeat)]
    return [states.get(name, []) for name in names]


def finished(study: Study, point: Point, states: States) -> list[tuple[Run, RunState]]:
    """One run of each repetition that has come to its end."""
    return [
        found
        for repeated in attempts(study, point, states)
        for found in [each for each in repeated if each[1].status == "finished"][:1]
    ]
