"""Any question to `paceline plan` ends with an answer that holds together, or with a message."""

import io
import json
import sys
import tomllib
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from functools import cache
from pathlib import Path
from unittest.mock import patch
from xml.etree import ElementTree

import pytest
from hypothesis import event, given, settings

import json_form
from command import SMALL
from front_door import LINKED, PROFILE, SITE, Question, questions
from paceline.cli.app import main
from paceline.plan.answer import ABOVE_ALL
from paceline.plan.training_profiles import TrainingProfiles
from paceline.specs import Answer, Plan, Profile, TrainingProfile
from paceline.specs.error_topics import TOPICS
from paceline.specs.plans.site_comparison import SiteComparison

FEW, MANY, PARTS = 120, 1000, 10
EXTREMES = ("5e-324", "1e-30", "1e30", "1e308", "9" * 40, "9" * 400)
DESCRIBED = ("--model", "gpt: layers=4 width=64 heads=1 seq=512 vocab=50k", "--batch", "64")
SLACK = 1.0 + 1e-9


class Said:
    """What the command printed, and its exit code."""

    def __init__(self, question: Question) -> None:
        out, err = io.StringIO(), io.StringIO()
        words = ["paceline", "plan", *question.words]
        with redirect_stdout(out), redirect_stderr(err), patch.object(sys, "argv", words):
            try:
                main()
                self.code: object = 0
            except SystemExit as ended:
                self.code = ended.code or 0
        self.out, self.err = out.getvalue(), err.getvalue()

    @property
    def answer(self) -> Answer:
        """The answer to a question with --json."""
        return Answer.model_validate(json_form.checked(json.loads(self.out)))


@pytest.fixture(scope="module", autouse=True)
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder to ask in, with a training, which is counted once: not for every question."""
    path = tmp_path_factory.mktemp("asked")
    (path / "folder").mkdir()
    (path / "train.py").write_text(SMALL)
    (path / "binary.py").write_bytes(b"\xff\xfe\0")
    with pytest.MonkeyPatch.context() as patched:
        patched.chdir(path)
        patched.setenv("XDG_CONFIG_HOME", str(path / "settings"))
        patched.setattr(TrainingProfiles, "_profile", lambda *_: counted())
        yield path


@cache
def counted() -> Profile:
    """The profile of the training."""
    written = TrainingProfile.model_validate(tomllib.loads(PROFILE))
    return written.precisions["bf16"].model_copy(update={"measured_on": None})


@pytest.mark.filterwarnings("error::RuntimeWarning")
@settings(max_examples=FEW)
@given(questions())
def test_some_questions(folder: Path, question: Question) -> None:
    event(ask(folder, question))


@pytest.mark.nightly
@pytest.mark.filterwarnings("error::RuntimeWarning")
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("part", range(PARTS))
def test_ten_thousand_questions(folder: Path, part: int) -> None:
    del part  # each has other questions, and its own process under -n

    @settings(max_examples=MANY)
    @given(questions())
    def any_question(question: Question) -> None:
        event(ask(folder, question))

    any_question()


@pytest.mark.slow
@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("cluster.toml", (*DESCRIBED, "--steps", "100")),
        ("profile.toml", ("train.py", "--profile", "profile.toml")),
        ("site.toml", (*DESCRIBED, "--site", "site.toml")),
    ],
)
def test_every_number_of_every_file_may_be_extreme(
    folder: Path, name: str, words: tuple[str, ...]
) -> None:
    files = {"cluster.toml": LINKED, "profile.toml": PROFILE, "site.toml": SITE}
    lines = files[name].splitlines()
    for at, line in enumerate(lines):
        key, _, value = line.partition(" = ")
        if value[:1].isdigit():
            for extreme in EXTREMES:
                text = "\n".join([*lines[:at], f"{key} = {extreme}", *lines[at + 1 :]])
                written = {each: text if each == name else files[each] for each in files}
                contents = {each: text.encode() for each, text in written.items()}
                ask(folder, Question((*words, "--json"), contents))


def ask(folder: Path, question: Question) -> str:
    """Ask, check what comes, and return which it is: an answer, or a message with a fix."""
    for file in folder.iterdir():
        if file.is_file() and file.suffix != ".py":
            file.unlink()
    for name, content in question.files.items():
        (folder / name).write_bytes(content)
        (folder / name).chmod(0o600)
    said = Said(question)
    if said.code == 0:
        check_answer(folder, question, said)
        return "answer"
    assert said.code == 2, said.err
    if question.json:
        assert set(json_form.checked(json.loads(said.out))) == {"error", "fix", "topic"}
    if any(line.startswith(("Usage:", "Error:")) for line in said.err.splitlines()):
        return "message"  # as click says it
    problem, arrow, rest = said.err[said.err.index("error: ") :].partition("\n  -> ")
    fix, see, topic = rest.partition("\nSee: paceline help ")
    assert problem
    assert arrow
    assert fix.strip()
    assert see
    assert topic.strip() in TOPICS
    return "message"


def check_answer(folder: Path, question: Question, said: Said) -> None:
    """Check that the files are there and that the figures hold together."""
    if question.given("--compare") is not None:
        if question.json:
            SiteComparison.model_validate(json_form.checked(json.loads(said.out)))
        return
    output = folder / (question.given("-o") or "plan.toml")
    engine = question.given("--engine") or "paceline"
    if engine == "paceline":
        plan = Plan.read(output)
        assert plan.estimate is not None
        assert plan.estimate.fits
    else:
        assert output.with_suffix(f".{engine}.txt").read_text().strip()
    ElementTree.fromstring(output.with_suffix(".svg").read_text())
    if "--quiet" not in question.words and not question.json:
        assert said.out.startswith("Use ")
    if question.json:
        check_figures(question, said.answer)
        check_limits(folder, question, said.answer)


def check_figures(question: Question, said: Answer) -> None:
    """Intervals contain their values, the layout fits, and odd figures are explained."""
    amounts = [said.estimate.step_seconds, said.estimate.peak_bytes]
    amounts += [point.step_seconds for point in said.curve]
    amounts += [said.training.seconds] if said.training else []
    for amount in amounts:
        assert 0 < amount.low <= amount.value <= amount.high
    assert said.estimate.fits
    assert said.estimate.layout.workers == said.nodes * said.devices_per_node
    assert said.batch % said.estimate.layout.data_workers == 0
    explained = any(remark.startswith("efficiency above 100 %") for remark in said.remarks)
    assert explained or all(point.efficiency <= ABOVE_ALL for point in said.curve)
    assert said.nodes in {point.nodes for point in said.curve}
    if counts := question.given("--nodes"):
        assert {str(point.nodes) for point in said.curve} <= set(counts.split(","))
    assert said.mfu is None or 0 < said.mfu <= 1
    if said.training is not None:
        assert 0 < said.training.goodput <= 1


def check_limits(folder: Path, question: Question, said: Answer) -> None:
    """Deadline and budget hold, and a larger budget gives no slower plan."""
    budget = question.given("--budget")
    if said.training is None or budget is None:
        return
    assert said.training.money is not None
    assert said.training.money <= float(budget) * SLACK
    if said.goal == "fastest":
        more = Said(question.asked_with("--budget", str(10 * float(budget) + 1)))
        if more.code == 0:  # a budget may be too large to be one
            assert more.answer.training is not None
            assert more.answer.training.seconds.value <= said.training.seconds.value * SLACK
