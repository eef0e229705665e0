"""The page of a run: what it says, what it must never do."""

import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from types import ModuleType

import pytest

from paceline.report import ReportedRun, RunState, render
from paceline.report.drawing.chart import Chart
from paceline.report.run.sections import progress
from paceline.specs import Damaged, Finished, NotSaved, PacelineError
from report.folders import (
    empty_run,
    failed,
    failed_run,
    finished,
    interrupted_run,
    realistic_run,
    say,
    started,
    steps,
)

NASTY = "</script><script>alert(1)</script><!--<img src=x onerror=alert(2)>"


class Outline(HTMLParser):
    """Which elements stand where, and what would be loaded."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.addresses: list[str] = []
        self.scripts: list[str | None] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        named = dict(attrs)
        self.addresses += [named[key] or "" for key in ("src", "href") if key in named]
        if tag == "script":
            self.scripts.append(named.get("type"))


def body(html: str) -> str:
    """The page without the program and the data of its pictures."""
    return html.split("<main>")[1].split("</main>", maxsplit=1)[0]


def test_a_finished_run(tmp_path: Path) -> None:
    run = realistic_run(tmp_path)
    html = render(run)
    assert "<title>gpt: finished – Paceline report</title>" in html
    assert "Finished: 500 of 500 steps, 32,000 samples. On n1, n2, n3, n4: cpu" in html
    text = body(html)
    for figure in ("Finished", "all 500 steps", "517", "1.470", "1 min 02 s", "4 on 4", "3.30 s"):
        assert figure in text
    assert "median of the 25 steps around each" in text
    assert "the longest, step 1, took 1.70 s" in text
    assert "packages.torch" in text
    assert "replicas = 4" in text
    assert "What failed" not in text
    assert run.secret_file.read_text() not in html
    assert "secret" not in text


def test_nothing_is_loaded_from_elsewhere(tmp_path: Path) -> None:
    html = render(realistic_run(tmp_path, count=20))
    outline = Outline(html)
    assert [address for address in outline.addresses if not address.startswith("#")] == []
    assert not re.search(r"(@import|url\(|importScripts|\bimport\s*[\"'(])\s*[\"']?https?:", html)
    assert "link" not in outline.tags
    assert "default-src 'none'" in html
    assert outline.scripts == ["application/json"] * 4 + ["module"] * 2


def test_a_failed_run_says_who_and_why(tmp_path: Path) -> None:
    html = render(failed_run(tmp_path))
    assert "Failed after 137 of 500 steps" in html
    assert 'worker 2 on node n3:</strong> <span class="message">RuntimeError: [enforce' in html
    assert "scores = query @ key.transpose(-2, -1)" in html
    assert "from logs/n3.log" in html
    assert html.count("lost its peer: a consequence") == 3


def test_text_of_the_user_stays_text(tmp_path: Path) -> None:
    run = realistic_run(tmp_path, count=20, name="a&b<i>")
    say(run, failed(0, NASTY, at=1.0))
    (run.logs / "n1.log").write_text(f"0: {NASTY}\n")
    run.versions_file.write_text(f'python = "{NASTY}"\n'.replace("<!--", "<\u2028!--"))
    html = render(run)
    assert "a&amp;b&lt;i&gt;" in html
    outline = Outline(html)
    assert outline.scripts == ["application/json"] * 4 + ["module"] * 2
    assert not {"img", "i"} & set(outline.tags)


def test_data_does_not_break_out_of_its_script(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw = progress._loss

    def with_nasty_label(state: RunState, altair: ModuleType) -> Chart:
        found = draw(state, altair)
        found.spec["description"] = NASTY
        return found

    monkeypatch.setattr(progress, "_loss", with_nasty_label)
    html = render(realistic_run(tmp_path, count=20))
    assert Outline(html).scripts == ["application/json"] * 4 + ["module"] * 2


def test_losses_that_are_no_numbers_are_gaps_and_said(tmp_path: Path) -> None:
    run = empty_run(tmp_path)
    say(run, started(0))
    say(run, steps(1, [3.0, float("nan"), float("-inf"), 2.0]))
    html = render(run)
    assert "At 2 steps, first at step 2, the loss was NaN or infinite: gaps" in html
    spec = html.split('id="loss-spec">')[1].split("</script>")[0]
    assert spec.count('"mean":null') == 2
    assert "Loss so far" in html
    assert "NaN" not in spec


def test_many_steps_are_drawn_as_stretches_and_that_is_said(tmp_path: Path) -> None:
    html = render(realistic_run(tmp_path, count=3000))
    assert "Each point is 12 steps: the line is their mean loss" in html
    assert html.split('id="loss-spec">')[1].split("</script>")[0].count('"trend":') == 250


def test_a_restart_and_lost_lines_are_said(tmp_path: Path) -> None:
    run = empty_run(tmp_path)
    say(run, failed(1, "node lost", at=1.0))
    say(run, steps(1, [3.0], generation=1))
    (run.events / "n2.jsonl").open("a").write('{"kind": "wor\n')
    html = render(run)
    assert "restarted 1 time;" in html
    assert "1 line in events/ could not be read" in html
    assert "start 1, worker 1 on n2: node lost" in html


def test_an_interrupted_run_is_one_run(tmp_path: Path) -> None:
    run = interrupted_run(tmp_path)
    html = render(run)
    assert "Finished after 2 interruptions: 100 of 100 steps, 6,400 samples." in html
    text = body(html)
    assert "all 100 steps, 2 interruptions" in text
    table = text.split("<h2>Interruptions</h2>")[1].split("</table>")[0]
    rows = [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row) for row in table.split("<tr>")[2:]]
    assert [row[1:] for row in rows] == [
        ["worker 2: killed by SIGKILL", "4 → 3", "38", "20", "18", "1 min 36 s"],
        ["time limit", "3 → 2", "70", "70", "0", "4 min 55 s"],
    ]
    assert (
        "6 checkpoints, the last of step 100 with 50.0 MB. Each was complete after 800 ms on"
        " average, while training continued; training was stalled for 60 ms in total, 0.51 % of"
        " its time. At least 10.0 MB (20 %) of the last one had not changed" in text
    )
    assert "Dashed lines: the 2 interruptions" in text
    spec = html.split('id="loss-spec">')[1].split("</script>")[0]
    assert spec.count('"reached":') == 2
    assert '"reached":' not in html.split('id="throughput-spec">')[1].split("</script>")[0]


def test_nothing_is_said_of_what_did_not_happen(tmp_path: Path) -> None:
    html = render(realistic_run(tmp_path, count=20))
    shown = html.split("</style>")[1].split('<script type="module">')[0].lower()
    for word in ("interrupt", "checkpoint", "resumed", "damaged", "dashed"):
        assert word not in shown.replace('"type": "rule"', ""), word


def test_trouble_with_checkpoints_is_said(tmp_path: Path) -> None:
    run = realistic_run(tmp_path, count=20)
    message = "model-00000-000.safetensors has changed: its hash is not the one that was written"
    say(run, Damaged(time=1.0, node="n1", step=40, message=message))
    say(run, NotSaved(time=1.0, node="n2", step=60, rank=1, message=f"No space left {NASTY}"))
    html = render(run)
    text = body(html)
    assert message in text
    assert "worker 1: No space left &lt;/script&gt;" in text
    assert "2 checkpoints could not be written or failed verification" in text
    assert "Interruptions" not in text
    assert Outline(html).scripts == ["application/json"] * 4 + ["module"] * 2


def test_a_cause_with_markup_stays_text(tmp_path: Path) -> None:
    run = empty_run(tmp_path)
    say(run, started(0))
    say(run, steps(1, [3.0]))
    say(run, failed(0, NASTY, at=1.0))
    say(run, started(0, generation=1))
    say(run, steps(1, [2.0], generation=1))
    html = render(run)
    assert "Running after 1 interruption: 1 of 500 steps so far." in html
    assert "the beginning" in body(html)
    assert Outline(html).scripts == ["application/json"] * 4 + ["module"] * 2


def test_a_run_that_waits_for_its_next_turn(tmp_path: Path) -> None:
    run = empty_run(tmp_path)
    say(run, started(0))
    say(run, steps(1, [3.0] * 10))
    say(run, finished(10, outcome="interrupted"))
    html = render(run)
    assert "Waiting for its next start after 1 interruption: 10 of 500 steps so far." in html
    assert "not resumed yet" in body(html)


def test_a_run_without_steps_needs_no_pictures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "altair", None)
    html = render(empty_run(tmp_path))
    assert "No worker has started yet." in html
    assert "nothing to draw" in html
    assert "<script" not in html


def test_a_stopped_run(tmp_path: Path) -> None:
    run = realistic_run(tmp_path, until=100)
    say(
        run,
        Finished(time=1, node="n1", outcome="stopped", steps=100, samples=6400, seconds=14.0),
    )
    assert "Stopped early at 100 of 500 steps." in render(run)


def test_without_the_extra_it_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "altair", None)
    with pytest.raises(PacelineError, match="charts need Altair") as caught:
        render(realistic_run(tmp_path, count=20))
    assert caught.value.fix == 'pip install "paceline[report]"'


def test_importing_the_room_loads_nothing_heavy() -> None:
    code = (
        "import sys, paceline.report\n"
        "print(sorted({'altair', 'vl_convert', 'jinja2', 'rich', 'torch'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_documented_fields_are_those_that_json_has(tmp_path: Path) -> None:
    documented = set()
    for page in ("report.md", "checkpoints.md"):
        text = (Path(__file__).parents[2] / "docs" / page).read_text()
        table = text.split("## JSON fields")[1].split("\n## ")[0]
        rows = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
        documented |= {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    assert documented == set(ReportedRun.read(empty_run(tmp_path)).to_dict())
