"""The reference of the documentation: made from the code, complete, and the same every time."""

import json
import os
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import markdown

from paceline.cli.help.topics import page_text, topics
from paceline.cli.outputs.versions import VERSIONS
from paceline.specs import SYNC_MODES, Cluster, Plan, errors
from paceline.specs.error_topics import TOPICS
from paceline.specs.site_file import SiteFile
from scripts.reference.commands import commands
from scripts.reference.fields import cell, docs_of, nested, stored_meanings
from scripts.reference.formats import event_types
from scripts.reference.messages import messages

ROOT = Path(__file__).parents[1]
PROGRAM = "import json; from scripts.reference.pages import pages; print(json.dumps(pages()))"


def made(seed: str) -> dict[str, str]:
    """The pages as another process makes them; sets have another order there."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        cwd=ROOT,
        env=os.environ | {"PYTHONHASHSEED": seed},
        capture_output=True,
        text=True,
        check=True,
    )
    found: dict[str, str] = json.loads(done.stdout)
    return found


@cache
def pages() -> dict[str, str]:
    return made("1")


def test_the_pages_are_the_same_every_time() -> None:
    assert made("2") == pages()


def test_the_navigation_has_every_page_and_no_other() -> None:
    text = (ROOT / "mkdocs.yml").read_text()
    nav = set(re.findall(r"reference/[\w/-]+\.md", text))
    assert nav == {path for path in pages() if path.endswith(".md")}
    assert "hooks: [scripts/reference/pages.py]" in text
    assert not (ROOT / "docs/reference").exists(), "these pages are made, not stored"


def test_every_command_and_option_is_there() -> None:
    for name, command in commands().items():
        page = pages()[f"reference/commands/{name}.md"]
        inside = getattr(command, "commands", None) or {name: command}
        for each in inside.values():
            options = {option for parameter in each.params for option in parameter.opts}
            assert not {each for each in options if each.startswith("-") and each not in page}
        assert "```bash\npaceline" in page
        assert "<str>" not in page
        assert " range>" not in page


def test_every_setting_has_a_row_and_a_type() -> None:
    page = pages()["reference/files.md"]
    for file in (Plan, Cluster, SiteFile):
        for model in nested(file):
            for name in model.model_fields:
                assert f"| `{name}` |" in page
    for mode in SYNC_MODES.names:
        assert f'mode = "{mode}"' in page
        for name in type(SYNC_MODES.get(mode)).model_fields:
            assert f"`{name}`" in page
    assert "PydanticUndefined" not in page
    assert "typing." not in page


def test_every_event_and_field_is_there() -> None:
    page = pages()["reference/events.md"]
    assert len(event_types()) > 20
    for event in event_types():
        assert f"## {event.model_fields['kind'].default} " in page
        for name in event.model_fields:
            assert f"`{name}`" in page


def test_docstrings_of_fields_are_found() -> None:
    found = docs_of(event_types()[0])
    assert found["threads"] == "CPU threads per worker."
    assert "generation" in found  # of the class above


EMPTY_CELL = re.compile(r"^\|.*\|[ \t]*\|", re.MULTILINE)


def test_no_cell_is_empty() -> None:
    """A field's meaning is its docstring, or a line in scripts/reference/meanings.toml."""
    assert EMPTY_CELL.findall("| `rank` | integer | required |  |\n")
    empty = [
        f"{name}: {row}"
        for name, text in pages().items()
        if name.endswith(".md")
        for row in EMPTY_CELL.findall(text.replace("\\|", ""))
    ]
    assert empty == []


def test_every_stored_meaning_is_on_a_page() -> None:
    text = "\n".join(pages().values())
    stored = {(kind, *item) for kind, each in stored_meanings().items() for item in each.items()}
    unused = [(kind, name) for kind, name, words in stored if f"| {cell(words)} |" not in text]
    assert sorted(unused) == []


def test_every_form_of_json_is_there() -> None:
    page = pages()["reference/json.md"]
    for name, version in VERSIONS.items():
        assert f"### paceline.{name}/{version} " in page
        assert json.loads(pages()[f"reference/schemas/{name}-{version}.json"])["$id"]


def test_every_message_is_on_the_page_of_errors() -> None:
    page = pages()["reference/errors.md"]
    assert len(messages()) > 450
    assert [topic for topic in TOPICS if f"{{#{topic}}}" not in page] == []
    assert "does not give the batch size" in page


def test_links_of_topics_lead_to_pages() -> None:
    there = {path.name for path in (ROOT / "docs").rglob("*.md")}
    there |= {path.rsplit("/", 1)[-1] for path in pages()}
    for topic in topics().values():
        for target in re.findall(r"\]\(([\w-]+\.md)\)", topic.text):
            assert target in there, f"{topic.name} links to {target}"


def test_every_exit_code_is_there() -> None:
    named = {
        int(code) for code in re.findall(r"^\| (\d+) \|", page_text("exit-codes"), re.MULTILINE)
    }
    codes = {value for name, value in vars(errors).items() if name.endswith("_EXIT_CODE")}
    assert codes < named


VARIABLE = re.compile(r"\bPACELINE_[A-Z_]*[A-Z]\b")


def test_every_environment_variable_is_there() -> None:
    used: set[str] = set()
    for path in (ROOT / "src").rglob("*"):
        if path.suffix in (".py", ".jinja"):
            used |= set(VARIABLE.findall(path.read_text()))
    assert used == set(VARIABLE.findall(page_text("environment")))


def test_choices_are_shown_without_backslashes() -> None:
    page = next(text for name, text in pages().items() if name.endswith("commands/run.md"))
    assert "`--precision <fp32|bf16|fp16>`" in page
    assert "[1 to 65535]" in page
    html = markdown.markdown(page, extensions=["tables"])
    assert "<td><code>--precision &lt;fp32|bf16|fp16&gt;</code></td>" in html
    assert "\\" not in html
