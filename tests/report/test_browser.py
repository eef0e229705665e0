"""The page in a real browser."""

import re
import shutil
import struct
import subprocess
from pathlib import Path

import pytest

from browser import browser
from paceline.report import render
from paceline.report.formats import Report, comparison_report, run_report, study_report, write
from report.comparisons import divided_run, three_runs
from report.folders import failed_run, interrupted_run, realistic_run
from report.studies import THREE, study_result

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium"),
]


def chromium(folder: Path, page: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Open a page in a browser of its own, without a network to load anything from."""
    assert CHROMIUM is not None
    return subprocess.run(
        [
            CHROMIUM,
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-quic",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            f"--user-data-dir={folder / 'profile'}",
            "--virtual-time-budget=10000",
            "--enable-logging=stderr",
            *options,
            page.as_uri(),
        ],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )


@pytest.mark.parametrize("make", [realistic_run, failed_run])
def test_every_picture_is_drawn(tmp_path: Path, make: object) -> None:
    assert callable(make)
    page = tmp_path / "report.html"
    page.write_text(render(make(tmp_path / "runs")))
    done = chromium(tmp_path, page, "--dump-dom")
    assert "CONSOLE" not in done.stderr
    assert "could not be drawn" not in done.stdout.split('type="module"')[0]
    for key in ("loss", "throughput", "step-time"):
        drawn = done.stdout.split(f'id="{key}"')[1].split("</figure>")[0]
        lines = re.findall(r'<g class="mark-line role-mark[^>]*><path[^>]* d="(M[^"]+)"', drawn)
        assert [line.count("L") > 100 for line in lines] == [True, True]
        assert 'aria-label="Line chart of' in drawn
    bars = done.stdout.split('id="distribution"')[1].split("</figure>")[0]
    assert bars.count('aria-roledescription="bar"') >= 10
    assert "Save as SVG" in bars
    assert "Open in Vega Editor" not in bars


def test_interruptions_are_rules_in_the_loss_picture(tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    page.write_text(render(interrupted_run(tmp_path / "runs")))
    done = chromium(tmp_path, page, "--dump-dom")
    assert "CONSOLE" not in done.stderr
    drawn = [
        done.stdout.split(f'id="{key}"')[1].split("</figure>")[0] for key in ("loss", "throughput")
    ]
    marks = [re.findall(r'<g class="mark-rule role-mark.*?</g>', each) for each in drawn]
    assert [each.count("<line") for each in marks[0]] == [2]
    assert marks[1] == []


def test_the_page_can_be_looked_at(tmp_path: Path) -> None:
    page, picture = tmp_path / "report.html", tmp_path / "report.png"
    page.write_text(render(realistic_run(tmp_path / "runs")))
    chromium(tmp_path, page, f"--screenshot={picture}", "--window-size=1280,900")
    content = picture.read_bytes()
    assert struct.unpack(">II", content[16:24]) == (1280, 900)
    # A blank page of this size is some 5 kB.
    assert len(content) > 30_000


CUT_OFF = """[...document.querySelectorAll(".picture svg text")].filter((text) => {
  const {left, right} = text.getBoundingClientRect();
  const frame = text.closest("svg").getBoundingClientRect();
  return text.textContent && (left < frame.left - 1 || right > frame.right + 1);
}).map((text) => text.textContent)"""
NAMELESS = "document.querySelectorAll('.vega-embed summary:not([aria-label])').length"


def test_names_in_pictures_are_whole_on_a_phone(tmp_path: Path) -> None:
    """Legends and labels: of three runs compared, of a run by worker, of a study by family."""
    reports: dict[str, Report] = {
        "run": run_report(divided_run(tmp_path / "one", "gpt")),
        "comparison": comparison_report(three_runs(tmp_path / "three")),
        "study": study_report(study_result(varied=THREE)),
    }
    with browser(tmp_path) as chromium:
        for kind, each in reports.items():
            chromium.show(write(each, "html", tmp_path / f"{kind}.html"), width=390)
            assert chromium.value(CUT_OFF) == [], kind
            assert chromium.value(NAMELESS) == 0, kind


def test_tables_are_whole_on_paper(tmp_path: Path) -> None:
    page = write(comparison_report(three_runs(tmp_path / "three")), "html", tmp_path / "all.html")
    wider = """[...document.querySelectorAll(".scroll")].filter(
      (each) => each.firstElementChild.offsetWidth > each.offsetWidth).length"""
    with browser(tmp_path) as chromium:
        chromium.show(page, width=700)
        assert chromium.value(wider) == 1
        chromium.ask("Emulation.setEmulatedMedia", media="print")
        assert chromium.value(wider) == 0
