"""Whatever is in a run's event files: `watch` and `report` show the run, and escape the rest."""

import io
import json
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from paceline.report import ReportedRun, RunReader, render, view
from paceline.specs import Run, event_adapter
from report.folders import empty_run
from security.schemas import NASTY, allowed, spoilt

EVENTS = allowed(event_adapter.json_schema())
LINES = st.lists(
    (EVENTS | spoilt(EVENTS)).map(lambda event: json.dumps(event).encode())
    | st.binary(max_size=50).map(lambda line: line.replace(b"\n", b"")),
    max_size=5,
)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return empty_run(tmp_path_factory.mktemp("runs"))


def watched(run: Run, text: bytes) -> str:
    """What `watch` shows of a run with this event file."""
    (run.events / "n1.jsonl").write_bytes(text)
    state = RunReader(run).refresh()
    screen = io.StringIO()
    Console(file=screen, width=200).print(view(state))
    json.dumps(ReportedRun(run, state).to_dict())
    return screen.getvalue()


class Outline(HTMLParser):
    """What a browser would make of a page, beside text."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.scripts = 0
        self.handlers: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.scripts += tag == "script"
        self.handlers += [name for name, _ in attrs if name.startswith("on")]


@given(lines=LINES)
def test_watch_shows_any_file(lines: list[bytes], run: Run) -> None:
    shown = watched(run, b"\n".join(lines) + b"\n")
    assert "\x1b[2J" not in shown  # what a worker says does not steer the terminal


@pytest.mark.nightly
@pytest.mark.timeout(1200)
@settings(max_examples=300)
@given(lines=LINES)
def test_the_report_is_made_of_any_file(lines: list[bytes], run: Run) -> None:
    (run.events / "n1.jsonl").write_bytes(b"\n".join(lines) + b"\n")
    outline = Outline(render(run))
    assert not outline.handlers
    assert "img" not in outline.tags


@pytest.mark.parametrize("cut", [1, 30, 60])
def test_a_torn_line_takes_no_other_with_it(cut: int, run: Run) -> None:
    event = {"kind": "failed", "time": 1.0, "node": "n1", "rank": 0, "message": "no room"}
    line = json.dumps(event).encode()
    assert "no room" in watched(run, line[:cut] + b"\n" + line + b"\n" + line[:cut])


@pytest.mark.parametrize("line", [b"[" * 1_000_000, b"\x00" * 1_000_000, b'{"a":' * 100_000])
def test_long_hostile_lines(line: bytes, run: Run) -> None:
    watched(run, line + b"\n")


def _with_nasty_words(schema: dict[str, Any], known: dict[str, Any]) -> Any:
    """One value that the schema allows, in which every text would break out of the page."""
    match schema:
        case {"$ref": name}:
            return _with_nasty_words(known[name.rpartition("/")[2]], known)
        case {"const": value} | {"enum": [value, *_]}:
            return value
        case {"anyOf": [first, *_]}:
            return _with_nasty_words(first, known)
        case {"type": "object", "properties": fields}:
            return {name: _with_nasty_words(each, known) for name, each in fields.items()}
        case {"type": "object"}:
            return {}
        case {"type": "array"}:
            return [_with_nasty_words(schema["items"], known)]
        case {"type": "string"}:
            return NASTY
        case {"type": "boolean"}:
            return False
    return 1


def test_no_word_of_any_event_gets_out_of_the_page(tmp_path: Path) -> None:
    run = empty_run(tmp_path)
    schema = event_adapter.json_schema()
    kinds = [each["$ref"].rpartition("/")[2] for each in schema["oneOf"]]
    events = [_with_nasty_words(schema["$defs"][kind], schema["$defs"]) for kind in kinds]
    for event in events:
        if "sync" in event:
            event["sync"] = {}  # has no words but Paceline's own
        event_adapter.validate_python(event)
    (run.events / "n1.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
    html = render(run)
    outline = Outline(html)
    assert "alert(1)" in html  # it is shown, as text
    assert "img" not in outline.tags
    assert not outline.handlers
    assert "<script>alert(1)" not in html
