"""Every error leads to a section that explains it, in `paceline help` and in the reference."""

import ast
import re
import subprocess
import sys
from email.message import Message
from pathlib import Path

import pytest

from command import paceline
from paceline.cli.help.topics import page_text, published_docs, sections, topics
from paceline.specs import PacelineError
from paceline.specs.error_topics import OTHER, TOPICS, topic_of
from paceline.specs.errors import DeviceFailed
from paceline.specs.registry import Registry
from scripts.reference.messages import error_classes, messages

SOURCE = Path(__file__).parents[2] / "src"
DOCS = SOURCE.parent / "docs"


def modules() -> set[str]:
    """The modules and packages of Paceline."""
    found = set()
    for path in (SOURCE / "paceline").rglob("*.py"):
        name = ".".join(path.relative_to(SOURCE).with_suffix("").parts)
        found.add(name.removesuffix(".__init__"))
    return found


def modules_that_raise() -> set[str]:
    """The modules in which a `PacelineError` is made."""
    names, found = set(error_classes()), set()
    for path in (SOURCE / "paceline").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and getattr(node.func, "id", None) in names:
                found.add(".".join(path.relative_to(SOURCE).with_suffix("").parts))
    return found


def test_every_module_that_raises_has_a_topic_of_its_own() -> None:
    found = modules_that_raise()
    assert len(found) > 150
    other = {module for module in found if topic_of(module) == OTHER}
    assert other == {"paceline.specs.registry"}


def test_every_topic_has_a_section_and_every_section_a_topic() -> None:
    assert sections(page_text("errors")).keys() == TOPICS.keys()


def test_every_topic_has_an_error() -> None:
    made = {each.topic for each in messages()}
    made |= {topic for topic in error_classes().values() if topic}
    assert made == TOPICS.keys()


def test_topics_name_modules_that_exist_each_once() -> None:
    named = [module for each in TOPICS.values() for module in each]
    assert len(named) == len(set(named))
    assert {f"paceline.{module}" for module in named} <= modules()


def test_every_section_says_what_to_do() -> None:
    for name, section in sections(page_text("errors")).items():
        assert "\n- " in section.text, name
        assert "\nMore: [" in section.text, name
        assert len(section.for_terminal().splitlines()) < 25, name


def test_an_error_has_the_topic_of_where_it_is_raised() -> None:
    namespace = {"__name__": "paceline.schedulers.kinds.slurm.entitlement", "E": PacelineError}
    exec("error = E('a', fix='b')", namespace)
    error = namespace["error"]
    assert isinstance(error, PacelineError)
    assert error.topic == "accounts"
    assert str(error) == "a\n  -> b"
    assert PacelineError("a", fix="b").topic == OTHER  # raised by another package
    assert PacelineError("a", fix="b", about="sync").topic == "sync"
    assert DeviceFailed("n1", "cuda:0", "it is hot").topic == "devices"


def test_an_unknown_name_is_explained() -> None:
    kinds: Registry[str] = Registry(
        "thing", group="paceline.things", package="paceline.sync.modes", attribute="X", kind=str
    )
    with pytest.raises(PacelineError) as raised:
        kinds.get("nothing")
    assert raised.value.topic in topics()


def said_by(folder: Path, *words: str) -> list[str]:
    """The lines of a failing command's message."""
    done = subprocess.run(
        [sys.executable, *words], cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    return done.stderr.splitlines()


def test_the_topic_is_printed_with_the_error(tmp_path: Path) -> None:
    problem, fix, see = said_by(tmp_path, "-m", "paceline", "plan")
    assert problem.startswith("error: ")
    assert fix.startswith("  -> ")
    assert see == "See: paceline help plan"
    shown = paceline("help", see.split()[-1], folder=tmp_path).stdout
    assert shown.startswith(topics()["plan"].title)


def test_a_script_alone_prints_the_topic_too(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(
        "import paceline\npaceline.Training(model=1, data=[1], batch=1)\n"
    )
    assert said_by(tmp_path, "train.py")[-1] == "See: paceline help training"


@pytest.mark.slow
def test_the_topic_of_a_workers_error_is_that_of_its_cause(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import paceline\ntraining = None\n")
    said = said_by(tmp_path, "-m", "paceline", "run", "train.py")
    assert any(line.startswith("error: worker 0 on node") for line in said)
    assert said[-1] == "See: paceline help script"


def test_a_command_is_no_topic_but_has_its_own_help(tmp_path: Path) -> None:
    assert said_by(tmp_path, "-m", "paceline", "help", "run")[:2] == [
        "error: run is a command, not a topic",
        "  -> try `paceline run --help`",
    ]


def test_a_topic_and_a_schema_are_not_combined(tmp_path: Path) -> None:
    assert said_by(tmp_path, "-m", "paceline", "help", "batch", "--schema", "plan")[:2] == [
        "error: a topic (batch) and --schema cannot be combined",
        "  -> try `paceline help batch` or `paceline help --schema plan`",
    ]


def test_links_to_pages_are_addresses_or_titles() -> None:
    batch, files = topics()["batch"], topics()["extensions"]
    assert "More: A larger batch (in the documentation)" in batch.for_terminal()
    docs = "https://host/paceline/docs"
    assert f"More: A larger batch ({docs}/larger-batch.md)" in batch.for_terminal(docs)
    assert f"({docs}/architecture.md)" in files.for_terminal(docs)
    for topic in topics().values():
        assert ".md" not in topic.for_terminal(), topic.name
        for page in re.findall(rf"\({docs}/([^)]+)\)", topic.for_terminal(docs)):
            assert (DOCS / page).is_file(), f"{topic.name}: no published page {page}"


@pytest.mark.parametrize(
    ("links", "address"),
    [
        (None, ""),
        (["Issues, https://host/p/issues"], ""),
        (["Documentation, https://host/p/docs/index.md"], "https://host/p/docs"),
    ],
)
def test_the_address_of_the_pages_is_that_of_the_package(
    monkeypatch: pytest.MonkeyPatch, links: list[str] | None, address: str
) -> None:
    package = Message()
    for each in links or []:
        package["Project-URL"] = each
    monkeypatch.setattr("paceline.cli.help.topics.metadata", lambda name: package)
    assert published_docs() == address
