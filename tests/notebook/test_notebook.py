"""`paceline.fit` and `paceline.show` in a notebook: real kernels run the cells."""

import base64
import json
import os
import re
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import nbformat
import pytest
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

import paceline
from paceline.report.notebook import Shown
from report.folders import empty_run, realistic_run

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples/notebook/first_run.ipynb"
SOURCE = re.compile(r"""(?:src|href|url)\s*[=(]\s*["']?([^"')\s>]+)""")


def executed(notebook: Any, folder: Path, **options: Any) -> Any:
    """Run a notebook in a folder by a kernel of this Python, and return it with its outputs."""
    client = NotebookClient(
        notebook, timeout=250, kernel_name="python3", resources={"metadata": {"path": str(folder)}}
    )
    return client.execute(**options)


@pytest.fixture
def paths(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """`!paceline` in a cell is the command of this environment; nothing is left in the home."""
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))


def outputs(cell: Any, kind: str) -> list[str]:
    """The outputs of a cell that have a kind of data."""
    return [each["data"][kind] for each in cell.outputs if kind in each.get("data", {})]


def images(html: str) -> list[bytes]:
    encoded = re.findall(r'src="data:image/svg\+xml;base64,([^"]+)"', html)
    return [base64.b64decode(each) for each in encoded]


@pytest.mark.slow
@pytest.mark.timeout(300)  # a kernel of its own loads torch
def test_the_example_runs(tmp_path: Path, paths: None) -> None:
    notebook = nbformat.read(EXAMPLE, as_version=4)
    notebook.cells.append(nbformat.v4.new_code_cell("import gc; gc.get_freeze_count()"))
    done = executed(notebook, tmp_path)
    fit, *_, show, frozen = [cell for cell in done.cells if cell.cell_type == "code"]
    (bar,) = outputs(fit, "text/html")
    assert '<progress value="240" max="240"' in bar
    assert "training: 240/240 steps  loss 0." in bar
    (report,) = outputs(show, "text/html")
    assert "Finished: 240 of 240 steps" in report
    assert len(images(report)) > 3
    assert "spiral" in outputs(show, "text/plain")[0]
    assert outputs(frozen, "text/plain") == ["0"]  # the user's objects can be collected


def test_the_example_is_stored_without_outputs() -> None:
    stored = nbformat.read(EXAMPLE, as_version=4)
    nbformat.validate(stored)
    cells = [cell for cell in stored.cells if cell.cell_type == "code"]
    assert [cell.outputs for cell in cells] == [[]] * len(cells)
    assert {cell.execution_count for cell in cells} == {None}


@pytest.mark.slow
@pytest.mark.timeout(300)  # a kernel of its own loads torch
def test_a_mistake_is_a_sentence_without_a_traceback(tmp_path: Path, paths: None) -> None:
    cell = nbformat.v4.new_code_cell("import paceline; paceline.show()")
    notebook = nbformat.v4.new_notebook(cells=[cell])
    with pytest.raises(CellExecutionError):
        executed(notebook, tmp_path)
    (failed,) = notebook.cells[0].outputs
    assert failed["ename"] == "PacelineError"
    assert failed["traceback"][0].startswith("error: paceline.show() was called without a run")
    assert "Traceback" not in json.dumps(failed)


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Shown:
    return paceline.show(realistic_run(tmp_path_factory.mktemp("runs")).path)


def test_a_report_needs_no_script_and_no_other_host(shown: Shown) -> None:
    html = shown._repr_html_()
    assert "<script" not in html
    assert re.search(r"\son\w+=", html) is None
    assert all(each.startswith("data:image/svg+xml;base64,") for each in SOURCE.findall(html))
    for image in images(html):
        names = {element.tag.partition("}")[2] for element in ElementTree.fromstring(image).iter()}
        assert not names & {"script", "foreignObject", "image", "use"}


def test_every_picture_has_a_description(shown: Shown) -> None:
    html = shown._repr_html_()
    described = re.findall(r'<img [^>]*alt="([^"]+)"', html)
    assert len(described) == len(images(html)) > 3


def test_several_runs_are_compared(tmp_path: Path) -> None:
    runs = [realistic_run(tmp_path / name).path for name in ("one", "two")]
    assert "2 runs" in repr(paceline.show(*runs))


def test_without_steps_there_are_no_pictures(tmp_path: Path) -> None:
    html = paceline.show(empty_run(tmp_path).path)._repr_html_()
    assert images(html) == []
    assert "No worker has started yet." in html


def test_a_study_is_shown_by_its_runs(tmp_path: Path) -> None:
    (tmp_path / "study.toml").touch()
    with pytest.raises(paceline.PacelineError, match="STUDY/runs"):
        paceline.show(tmp_path)
