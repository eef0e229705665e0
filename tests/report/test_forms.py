"""A report in each of its forms, and what is said to who asks for one that cannot be."""

import csv
import io
import re
from dataclasses import replace
from pathlib import Path

import pypdf
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from paceline.report import RunReader
from paceline.report.drawing.chart import Chart
from paceline.report.drawing.figure_files import PNG_SCALE, WIDTH_PIXELS
from paceline.report.drawing.tables import Table, latex
from paceline.report.formats import Form, Report, comparison_report, run_report, study_report, write
from paceline.specs import PacelineError
from report.comparisons import divided_run, three_runs
from report.folders import empty_run, failed_run, interrupted_run
from report.studies import THREE, nasty_study, study_result
from report.test_page import NASTY


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Report]:
    folder = tmp_path_factory.mktemp("runs")
    return {
        "run": run_report(divided_run(folder / "one", "gpt")),
        "study": study_report(study_result(varied=THREE)),
        "comparison": comparison_report(three_runs(folder)),
    }


@pytest.mark.parametrize("kind", ["run", "study", "comparison"])
def test_a_pdf_has_the_first_screen_the_pictures_and_the_tables(
    reports: dict[str, Report], tmp_path: Path, kind: str
) -> None:
    report = reports[kind]
    said = report.brief()
    file = write(report, "pdf", tmp_path / "report.pdf")
    read = pypdf.PdfReader(file)
    text = re.sub(r"\s+", " ", " ".join(page.extract_text() for page in read.pages))
    assert read.metadata is not None
    assert read.metadata.title == said.title
    first = re.sub(r"\s+", " ", read.pages[0].extract_text())
    for label, figure, small, _ in said.tiles:
        assert label in first
        assert figure in first
        assert small in first
    for picture in said.pictures:
        assert picture.title in text
        assert picture.caption in text
    for table in said.tables:
        for row in table.rows:
            assert all(cell in text for cell in row)
    assert f"1 of {len(read.pages)}" in text
    # Pictures are lines, not pixels.
    assert not any(page.images for page in read.pages)


def test_a_long_table_goes_on_on_the_next_page(
    reports: dict[str, Report], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    report = reports["study"]
    said = report.brief()
    rows = [(f"line {number}", str(number)) for number in range(200)]
    many = Table("Many", ("What", "Number"), rows, ("What",), "Some.")
    long = type(said)(said.title, said.sentence, said.tiles, [], [many])
    report = replace(report, brief=lambda: long)
    pages = pypdf.PdfReader(write(report, "pdf", tmp_path / "long.pdf")).pages
    assert len(pages) >= 4
    text = " ".join(page.extract_text() for page in pages)
    assert all(f"line {number}" in text for number in range(200))


@pytest.mark.parametrize("kind", ["run", "study", "comparison"])
def test_pictures_for_papers_are_black_on_white(
    reports: dict[str, Report], tmp_path: Path, kind: str
) -> None:
    pictures = reports[kind].brief().pictures
    folder = write(reports[kind], "svg", tmp_path / "deep" / "svg")
    assert sorted(file.stem for file in folder.iterdir()) == sorted(p.key for p in pictures)
    for file in folder.iterdir():
        svg = file.read_text()
        assert "currentColor" not in svg
        assert 'fill="white"' in svg
        words = re.findall(r"<text[^>]*>", svg)
        assert words
        assert all('fill="black"' in each or 'fill="#000"' in each for each in words)


def test_pictures_as_pixels(reports: dict[str, Report], tmp_path: Path) -> None:
    folder = write(reports["comparison"], "png", tmp_path / "png")
    assert {file.name for file in folder.iterdir()} == {"loss.png", "throughput.png", "parts.png"}
    for file in folder.iterdir():
        with Image.open(file) as image:
            assert image.width >= WIDTH_PIXELS * PNG_SCALE
            assert image.convert("RGB").getpixel((1, 1)) == (255, 255, 255)


def test_steps_as_csv(tmp_path: Path) -> None:
    run = interrupted_run(tmp_path)
    rows = list(csv.DictReader(io.StringIO(run_report(run).csv())))
    state = RunReader(run).refresh()
    assert list(rows[0]) == ["step", "loss", "seconds", "samples", "time"]
    assert [int(row["step"]) for row in rows] == list(range(1, 101))
    assert [float(row["loss"]) for row in rows] == state.loss
    assert [float(row["time"]) for row in rows] == state.time


def test_a_run_as_latex(reports: dict[str, Report], tmp_path: Path) -> None:
    text = write(reports["run"], "latex", tmp_path / "run.tex").read_text()
    assert r"\begin{tabular}{lr}" in text
    assert r"    Samples & 19,200 \\" in text
    assert r"    Limited by & network, 15 \% of a step \\" in text
    failed = run_report(failed_run(tmp_path)).table()
    assert ("Status", "failed") in failed.rows
    assert "Limited by" not in [name for name, _ in failed.rows]


def test_what_a_user_wrote_stays_text(tmp_path: Path) -> None:
    report = study_report(nasty_study(NASTY))
    pages = pypdf.PdfReader(write(report, "pdf", tmp_path / "nasty.pdf")).pages
    assert "<script>alert(1)" in "".join(page.extract_text() for page in pages)


@pytest.mark.parametrize("form", ["html", "pdf", "csv", "latex"])
def test_a_folder_is_no_file(reports: dict[str, Report], tmp_path: Path, form: Form) -> None:
    with pytest.raises(PacelineError, match=f"is a folder, but --format {form} writes one file"):
        write(reports["run"], form, tmp_path)
    with pytest.raises(PacelineError, match=r"there is no folder .*/nowhere"):
        write(reports["run"], form, tmp_path / "nowhere" / "report")


def test_pictures_want_a_folder(reports: dict[str, Report], tmp_path: Path) -> None:
    taken = tmp_path / "taken"
    taken.write_text("mine")
    with pytest.raises(PacelineError, match="is a file, but --format svg writes a file for each"):
        write(reports["run"], "svg", taken)
    assert taken.read_text() == "mine"


def test_a_run_without_steps_has_no_pictures(tmp_path: Path) -> None:
    report = run_report(empty_run(tmp_path / "runs"))
    with pytest.raises(PacelineError, match="no step has been taken"):
        write(report, "png", tmp_path / "png")
    pages = pypdf.PdfReader(write(report, "pdf", tmp_path / "empty.pdf")).pages
    assert "No worker has started yet." in pages[0].extract_text()


def test_a_place_that_cannot_be_written(reports: dict[str, Report]) -> None:
    with pytest.raises(PacelineError, match=r"/proc/report\.csv cannot be written"):
        write(reports["run"], "csv", Path("/proc/report.csv"))


def test_without_pypdf_it_is_said_what_to_install(
    reports: dict[str, Report], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pypdf", None)
    with pytest.raises(PacelineError, match="PDF files need pypdf"):
        write(reports["run"], "pdf", tmp_path / "report.pdf")


def test_every_picture_has_a_key_that_is_a_good_file_name(reports: dict[str, Report]) -> None:
    found: list[Chart] = [p for each in reports.values() for p in each.brief().pictures]
    assert all(re.fullmatch(r"[a-z-]+", picture.key) for picture in found)


@given(st.text())
def test_latex_reads_no_sign_of_a_text_as_a_command(text: str) -> None:
    left = re.sub(r"\\text[a-z]+\{\}|\\[&%$#_{}]", "", latex(text))
    assert not set(left) & set("\\&%$#_{}~^\n")
