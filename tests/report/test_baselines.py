"""Pages still look as they did when somebody last looked at them.

Kept of each page: its tiles and its pictures, each made as small as the others, one above the
other. Where they stand on the page is checked by numbers, since with another font a caption has
more lines. After a change that is meant, look at what the page has become, and keep that:
`PACELINE_KEEP_BASELINES=1 python -m pytest tests/report/test_baselines.py`.
"""

import io
import json
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from browser import CHROMIUM, Browser, browser
from paceline.report.formats import Report, comparison_report, run_report, study_report, write
from report.comparisons import divided_run, three_runs
from report.faulty import faulty_run
from report.studies import THREE, study_result

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium"),
]
BASELINES = Path(__file__).parent / "baselines"
KEEP = bool(os.environ.get("PACELINE_KEEP_BASELINES"))
WIDTH, HEIGHT = 200, 100
CELL = 10
"""Pixels of a small picture that are compared as one: letters of another font differ in less."""
MOST_APART = 0.02
"""Of the full scale, on average. Another font makes 0.007 at most."""
LEAST_ALIKE = 0.8
"""How the cells of each part are correlated. Another font makes 0.86 at least; without its lines,
a picture has 0.3."""
PARTS = """JSON.stringify([...document.querySelectorAll(".tiles, .picture")].map((part) => {
  const {x, y, width, height} = part.getBoundingClientRect();
  return [x, y + scrollY, width, height].map(Math.round);}))"""
SHOTS = [
    *(("run", width, dark) for width in (1280, 390) for dark in (False, True)),
    *(
        (kind, *look)
        for kind in ("study", "comparison", "faults")
        for look in ((1280, False), (390, True))
    ),
]


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with browser(tmp_path_factory.mktemp("browser")) as opened:
        yield opened


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pages")
    reports: dict[str, Report] = {
        "run": run_report(divided_run(folder / "one", "gpt")),
        "faults": run_report(faulty_run(folder / "faults")),
        "study": study_report(study_result(varied=THREE)),
        "comparison": comparison_report(three_runs(folder / "three")),
    }
    return {kind: write(each, "html", folder / f"{kind}.html") for kind, each in reports.items()}


Box = tuple[int, int, int, int]


def boxes(chromium: Browser) -> list[Box]:
    """Where tiles and pictures stand: x, y, width, height."""
    return [(x, y, width, height) for x, y, width, height in json.loads(chromium.value(PARTS))]


def sheet(chromium: Browser) -> Image.Image:
    """What is seen of them now."""
    found = boxes(chromium)
    made = Image.new("RGB", (WIDTH, HEIGHT * len(found)))
    with Image.open(io.BytesIO(chromium.screenshot())) as page:
        for number, (x, y, width, height) in enumerate(found):
            part = page.convert("RGB").crop((x, y, x + width, y + height))
            part = part.resize((WIDTH, HEIGHT), Image.Resampling.BOX)
            made.paste(part, (0, HEIGHT * number))
    return made


def compared(kept: Image.Image, seen: Image.Image) -> tuple[float, float]:
    """How far apart they are on average, and how alike the part is that is least alike."""
    one, other = _cells(kept), _cells(seen)
    alike = [
        # What is all of one colour is like nothing.
        float(np.corrcoef(a, b)[0, 1]) if a.std() and b.std() else 0.0
        for a, b in zip(one, other, strict=True)
    ]
    return float(np.abs(one - other).mean()), min(alike)


def _cells(image: Image.Image) -> NDArray[np.float64]:
    """A row of numbers for each part."""
    pixels = np.asarray(image.convert("RGB"), dtype=np.float64) / 255
    rows, columns = (size // CELL for size in pixels.shape[:2])
    cells = pixels.reshape(rows, CELL, columns, CELL, 3).mean(axis=(1, 3))
    parts: NDArray[np.float64] = cells.reshape(image.height // HEIGHT, -1)
    return parts


def looks_the_same(kept: Image.Image, seen: Image.Image) -> bool:
    apart, alike = compared(kept, seen)
    return apart < MOST_APART and alike > LEAST_ALIKE


def check_places(chromium: Browser, width: int) -> None:
    """Pictures stand side by side where there is room, and nothing is wider than the window."""
    assert chromium.value("document.documentElement.scrollWidth") == width
    tiles, first, second, *_ = boxes(chromium)
    assert tiles[2] > 0.85 * width
    assert tiles[1] + tiles[3] < first[1]
    if width > 500:
        assert second[1] == first[1]
        assert second[0] > first[0] + first[2]
    else:
        assert second[0] == first[0]
        assert second[1] > first[1] + first[3]


@pytest.mark.parametrize(("kind", "width", "dark"), SHOTS)
def test_a_page_looks_as_it_did(
    chromium: Browser, pages: dict[str, Path], kind: str, width: int, dark: bool
) -> None:
    file = BASELINES / f"{kind}-{width}-{'dark' if dark else 'light'}.png"
    chromium.show(pages[kind], width=width, dark=dark)
    check_places(chromium, width)
    seen = sheet(chromium)
    if KEEP:
        seen.save(file, optimize=True)
    with Image.open(file) as kept:
        assert kept.size == seen.size
        assert looks_the_same(kept, seen), f"{file.name}: {compared(kept, seen)}"


CHANGES = {
    "bars are gone": "for (const bar of document.querySelectorAll('#parts .mark-rect path'))"
    " bar.style.display = 'none'",
    "another colour": "for (const bar of document.querySelectorAll('#throughput .mark-rect path'))"
    " bar.style.fill = '#D55E00'",
    "lines are gone": "for (const line of document.querySelectorAll('#loss .mark-line path'))"
    " line.style.display = 'none'",
    "a picture is gone": "document.querySelector('#loss').style.visibility = 'hidden'",
    "tiles are empty": "for (const tile of document.querySelectorAll('.tiles > *'))"
    " tile.innerHTML = ''",
    "dark": "document.body.style.background = '#15181c'",
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_is_noticed(chromium: Browser, pages: dict[str, Path], change: str) -> None:
    chromium.show(pages["comparison"])
    before = sheet(chromium)
    assert looks_the_same(before, sheet(chromium))
    chromium.value(CHANGES[change])
    assert not looks_the_same(before, sheet(chromium))


@pytest.mark.parametrize("kind", ["study", "comparison"])
def test_another_font_is_no_change(
    chromium: Browser, pages: dict[str, Path], tmp_path: Path, kind: str
) -> None:
    other = tmp_path / "other.html"
    text = pages[kind].read_text()
    assert "system-ui, sans-serif" in text
    text = text.replace("system-ui, sans-serif", "Liberation Sans, serif")
    # The policy allows only the style that it has the hash of.
    other.write_text(text.replace('http-equiv="Content-Security-Policy"', ""))
    chromium.show(pages[kind])
    before = sheet(chromium)
    chromium.show(other)
    assert looks_the_same(before, sheet(chromium)), compared(before, sheet(chromium))


def test_baselines_are_small() -> None:
    files = list(BASELINES.glob("*.png"))
    assert len(files) == len(SHOTS)
    assert all(file.stat().st_size < 60_000 for file in files)
