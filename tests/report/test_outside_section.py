"""A section of another package: installed, it is in the page, in `--json` and in the PDF."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pypdf
import pytest

from outside import environment
from paceline.report import ReportedRun
from report.folders import empty_run, realistic_run


def reported(*words: str, plugins: tuple[str, ...] = ("section",)) -> str:
    command = [sys.executable, "-m", "paceline", "report", *words]
    done = subprocess.run(
        command, env=environment(*plugins), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.nightly
def test_an_outside_section_is_in_every_form(tmp_path: Path) -> None:
    run = str(realistic_run(tmp_path, count=20).path)
    figures = json.loads(reported(run, "--json"))
    assert figures["longest_step"] == {"step": 1, "seconds": 1.7}
    reported(run, "-o", str(tmp_path / "page.html"))
    page = (tmp_path / "page.html").read_text()
    assert '<section id="longest-step">\n<h2>Longest step</h2>' in page
    assert "<p>Step 1 took longest: 1.70 s.</p>" in page
    assert page.index("<h2>Workers</h2>") < page.index("<h2>Longest step</h2>")
    reported(run, "--format", "pdf", "-o", str(tmp_path / "page.pdf"))
    pages = pypdf.PdfReader(tmp_path / "page.pdf").pages
    text = re.sub(r"\s+", " ", " ".join(each.extract_text() for each in pages))
    assert "Step 1 took longest: 1.70 s." in text


def test_without_the_package_there_is_no_such_section(tmp_path: Path) -> None:
    report = ReportedRun.read(empty_run(tmp_path))
    assert "longest_step" not in report.to_dict()
    assert "longest-step" not in report.contents
