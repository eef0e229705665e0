"""A report as PDF, for a committee or an archive; needs no browser, so it works on a login node.

This module lays pages out as SVG, and vl-convert turns them into PDF with their fonts, so text
stays text and charts stay vector graphics.
"""

import base64
import io
import math
import re
from collections.abc import Sequence
from types import ModuleType
from xml.sax.saxutils import escape

from paceline.report.drawing.brief import Brief, Content
from paceline.report.drawing.chart import Chart, drawing_packages
from paceline.report.drawing.figure_files import FONT, as_svg
from paceline.report.drawing.tables import Table
from paceline.report.reading.failure_cause import plain
from paceline.specs import PacelineError
from paceline.specs.units import shortened

# A4, in points.
WIDTH, HEIGHT, MARGIN = 595.0, 842.0, 42.0
INNER = WIDTH - 2 * MARGIN
GAP = 14.0
LONGEST_CELL = 60
"""Maximum number of characters in a table cell."""
MOST_TILES = 5
"""Maximum number of tiles in a row."""
TEXT, QUIET, RULE = "#1a1d21", "#5a626c", "#dde1e6"
GROUNDS = {"finished": "#e2f4ee", "stopped": "#fcf1d8", "slow": "#fcf1d8", "failed": "#fdeade"}
CARD, NOTE = "#f6f7f9", "#fcf1d8"
NARROW, WIDE = set(" .,:;'|!ijlftrI()[]/-"), set("mwMW%@")


def to_pdf(brief: Brief) -> bytes:
    """Return the report as PDF: the key results, then the charts, then tables and sections."""
    try:
        import pypdf  # noqa: PLC0415
    except ImportError as error:
        raise PacelineError(
            f"PDF files need pypdf: {error}", fix='pip install "paceline[report]"'
        ) from None
    _, vl_convert = drawing_packages()
    sheets = _Sheets()
    _first_screen(sheets, brief)
    _pictures(sheets, brief.pictures, vl_convert)
    for table in brief.tables:
        _table(sheets, table)
    for section in brief.sections:
        _section(sheets, section)
    written = pypdf.PdfWriter()
    for page in sheets.pages(brief.title):
        # vl-convert turns each SVG pixel into one point.
        written.append(io.BytesIO(vl_convert.svg_to_pdf(page)))
    written.add_metadata({"/Title": plain(brief.title), "/Producer": "Paceline"})
    out = io.BytesIO()
    written.write(out)
    return out.getvalue()


class _Sheets:
    """Pages, filled from top to bottom."""

    def __init__(self) -> None:
        self._pages: list[list[str]] = [[]]
        self.y = MARGIN

    def room(self, height: float) -> None:
        """Start a new page unless this one has `height` left."""
        if self.y + height > HEIGHT - MARGIN - GAP and self.y > MARGIN:
            self._pages.append([])
            self.y = MARGIN

    def mark(self, text: str) -> None:
        """Append a piece of SVG."""
        self._pages[-1].append(text)

    def words(
        self,
        x: float,
        y: float,
        text: str,
        size: float,
        *,
        color: str = TEXT,
        weight: int = 400,
        end: bool = False,
    ) -> None:
        """Write a line of text that starts at `x`, or ends there if `end`."""
        anchor = ' text-anchor="end"' * end
        self.mark(
            f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" fill="{color}"'
            f' font-weight="{weight}"{anchor}>{escape(_printable(text))}</text>'
        )

    def paragraph(self, text: str, size: float, *, color: str = TEXT, weight: int = 400) -> None:
        """Write lines as wide as the page."""
        for line in _lines(text, size, INNER):
            self.room(1.4 * size)
            self.words(MARGIN, self.y + size, line, size, color=color, weight=weight)
            self.y += 1.4 * size

    def box(self, x: float, width: float, height: float, color: str) -> None:
        """Draw a colored background box."""
        self.mark(
            f'<rect x="{x:.1f}" y="{self.y:.1f}" width="{width:.1f}" height="{height:.1f}" rx="4"'
            f' fill="{color}"/>'
        )

    def pages(self, title: str) -> list[str]:
        """Return all pages, numbered."""
        made = []
        for number, marks in enumerate(self._pages, 1):
            foot = f"{_printable(title)} – {number} of {len(self._pages)}"
            made.append(
                f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}"'
                f' font-family="{FONT}"><rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>'
                f'{"".join(marks)}<text x="{WIDTH - MARGIN}" y="{HEIGHT - MARGIN / 2}"'
                f' font-size="8" fill="{QUIET}" text-anchor="end">{escape(foot)}</text></svg>'
            )
        return made


def _first_screen(sheets: _Sheets, brief: Brief) -> None:
    sheets.paragraph(brief.title, 20, weight=700)
    sheets.y += 4
    sheets.paragraph(brief.sentence, 10)
    sheets.y += GAP
    # Balance the rows.
    columns = math.ceil(len(brief.tiles) / math.ceil(len(brief.tiles) / MOST_TILES))
    width = (INNER - (columns - 1) * 8) / columns
    for first in range(0, len(brief.tiles), columns):
        row = brief.tiles[first : first + columns]
        small = [_lines(each[2], 8, width - 18) for each in row]
        height = 45.0 + 10 * max(1, *map(len, small))
        sheets.room(height)
        for at, ((label, figure, _, grade), lines) in enumerate(zip(row, small, strict=True)):
            x = MARGIN + at * (width + 8)
            sheets.box(x, width, height, GROUNDS.get(grade, CARD))
            sheets.words(x + 9, sheets.y + 15, label, 8, color=QUIET)
            sheets.words(x + 9, sheets.y + 33, figure, _fitting(figure, 15, width - 18), weight=700)
            for number, line in enumerate(lines):
                sheets.words(x + 9, sheets.y + 46 + 10 * number, line, 8, color=QUIET)
        sheets.y += height + 8
    for each in brief.remarks:
        sheets.paragraph(each, 9)
    for each in brief.notes:
        lines = _lines(each, 9, INNER - 18)
        sheets.room(12.6 * len(lines) + 10)
        sheets.box(MARGIN, INNER, 12.6 * len(lines) + 6, NOTE)
        for number, line in enumerate(lines):
            sheets.words(MARGIN + 9, sheets.y + 12 + 12.6 * number, line, 9)
        sheets.y += 12.6 * len(lines) + 10
    sheets.y += GAP / 2


def _pictures(sheets: _Sheets, pictures: Sequence[Chart], vl_convert: ModuleType) -> None:
    """Draw charts in pairs, side by side."""
    width = (INNER - 2 * GAP) / 2
    for first in range(0, len(pictures), 2):
        pair = [(each, as_svg(each, vl_convert)) for each in pictures[first : first + 2]]
        heights = [_height(svg, width) for _, svg in pair]
        captions = [_lines(each.caption, 7.5, width) for each, _ in pair]
        whole = 16 + max(heights) + 10 * max(map(len, captions)) + GAP
        sheets.room(whole)
        for at, (each, svg) in enumerate(pair):
            x = MARGIN + at * (width + 2 * GAP)
            sheets.words(x, sheets.y + 10, each.title, 10, weight=700)
            data = base64.b64encode(svg.encode()).decode()
            # Embed as an image, so that ids of one chart do not clash with those of another.
            sheets.mark(
                f'<image x="{x:.1f}" y="{sheets.y + 16:.1f}" width="{width:.1f}"'
                f' height="{heights[at]:.1f}" href="data:image/svg+xml;base64,{data}"/>'
            )
            for number, line in enumerate(captions[at]):
                y = sheets.y + 16 + heights[at] + 10 * (number + 1)
                sheets.words(x, y, line, 7.5, color=QUIET)
        sheets.y += whole


def _section(sheets: _Sheets, section: Content) -> None:
    if section.words:
        _heading(sheets, section.title)
        for words in section.words:
            sheets.paragraph(words, 9)
    for table in section.tables:
        _table(sheets, table, heading=not section.words)


def _heading(sheets: _Sheets, title: str) -> None:
    sheets.room(70)
    sheets.y += GAP
    sheets.paragraph(title, 12, weight=700)


def _table(sheets: _Sheets, table: Table, *, heading: bool = True) -> None:
    cut = [[shortened(cell, LONGEST_CELL) for cell in row] for row in table.rows]
    lines = [table.names, *cut]
    wide = [max(_width(line[at], 1.0) for line in lines) for at in range(len(table.names))]
    # The largest size that fits with a gap of 1.5 letters between columns.
    size = min(8.5, INNER / (sum(wide) + 1.5 * len(wide)))
    ends = [sum(wide[: at + 1]) * size + 1.5 * size * at for at in range(len(wide))]
    if heading:
        _heading(sheets, table.title)
    sheets.paragraph(table.caption, 8, color=QUIET)
    sheets.y += 4
    for number, line in enumerate(lines):
        sheets.room(1.8 * size)
        for at, (cell, left) in enumerate(zip(line, table.left, strict=True)):
            x = MARGIN + ends[at] - left * wide[at] * size
            color = TEXT if number else QUIET
            sheets.words(x, sheets.y + 1.2 * size, cell, round(size, 2), color=color, end=not left)
        sheets.y += 1.75 * size
        sheets.mark(
            f'<line x1="{MARGIN}" x2="{MARGIN + ends[-1]:.1f}" y1="{sheets.y:.1f}"'
            f' y2="{sheets.y:.1f}" stroke="{RULE}" stroke-width="0.6"/>'
        )


def _height(svg: str, width: float) -> float:
    """Return the height of a chart that is `width` wide."""
    found = re.search(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', svg)
    assert found is not None
    return width * float(found[2]) / float(found[1])


def _lines(text: str, size: float, width: float) -> list[str]:
    lines = [""]
    for word in _printable(text).split():
        longer = f"{lines[-1]} {word}".strip()
        if lines[-1] and _width(longer, size) > width:
            lines.append(word)
        else:
            lines[-1] = longer
    return [line for line in lines if line]


def _width(text: str, size: float) -> float:
    """Estimate the width of a text in Arial and similar fonts, rather too wide than too narrow."""
    wide = sum(0.34 if sign in NARROW else 0.9 if sign in WIDE else 0.58 for sign in text)
    return wide * size


def _fitting(text: str, size: float, width: float) -> float:
    return round(min(size, width / max(_width(text, 1.0), 0.1)), 2)


def _printable(text: str) -> str:
    """Replace control characters, which XML and therefore SVG does not allow."""
    return "".join(sign if sign.isprintable() else " " for sign in plain(text))
