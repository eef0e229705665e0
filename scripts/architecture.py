"""Draw docs/images/architecture.svg: the rooms of Paceline, their floors and their imports.

    python scripts/architecture.py

Floors come from the import contract in pyproject.toml, rooms' purposes from their docstrings and
arrows from the code's own imports. An arrow that others imply is left out.
"""

import ast
import sys
import tomllib
from dataclasses import dataclass
from html import escape
from itertools import pairwise
from pathlib import Path
from statistics import fmean

import grimp
import networkx as nx

ROOT = Path(__file__).parent.parent
PICTURE = ROOT / "docs" / "images" / "architecture.svg"

WIDTH, MARGIN, GAP = 1240, 24, 22
ROOM_WIDTH, LANE_WIDTH = 196, 6
BOX_HEIGHT, FLOOR_HEIGHT = 58, 112
SWEEPS = 12
"""Passes that order a floor by its neighbors, so that few arrows cross."""
STYLE = """
text { font-family: system-ui, sans-serif; }
.room { fill: #f4f7fb; stroke: #0072B2; stroke-width: 1.5; }
.torch { fill: #fdf3ea; stroke: #D55E00; }
.name { font-size: 16px; font-weight: 600; fill: #1a1d21; }
.purpose { font-size: 10.5px; fill: #5a626c; }
.floor { font-size: 12px; fill: #8a929c; }
.ground { fill: #ffffff; }
.arrow { fill: none; stroke: #8a929c; stroke-width: 1.1; opacity: 0.75; }
"""


@dataclass(frozen=True)
class Box:
    """Where a room, or the lane of an arrow that passes its floor, is drawn."""

    x: float
    y: float
    width: float

    @property
    def middle(self) -> float:
        """The horizontal center."""
        return self.x + self.width / 2


Lane = tuple[str, int]
"""The arrows to one room share a lane on each floor that they pass."""


def floors() -> list[list[str]]:
    """Return the rooms of each floor, the top floor first."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    contract = next(
        each
        for each in settings["tool"]["importlinter"]["contracts"]
        if each["name"].startswith("Floors: ")
    )
    return [
        [name.strip().removeprefix("paceline.") for name in layer.split("|")]
        for layer in contract["layers"]
    ]


def imports(rooms: list[str]) -> nx.DiGraph:
    """Return the imports between rooms, without those that others imply."""
    graph = grimp.build_graph("paceline", cache_dir=None)
    found = nx.DiGraph()
    found.add_nodes_from(rooms)
    for module in graph.modules:
        room = _room(module)
        for other in map(_room, graph.find_modules_directly_imported_by(module)):
            if room in rooms and other in rooms and room != other:
                found.add_edge(room, other)
    return nx.transitive_reduction(found)


def picture() -> str:
    """Return the picture as SVG."""
    levels = floors()
    arrows = sorted(imports([room for level in levels for room in level]).edges)
    floor_of = {room: number for number, level in enumerate(levels) for room in level}
    ways = [_way(above, below, floor_of) for above, below in arrows]
    boxes = _boxes(_ordered(levels, ways))
    height = len(levels) * FLOOR_HEIGHT + MARGIN
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img"'
        ' aria-label="Rooms of Paceline by floor, with the imports between them">',
        f"<style>{STYLE}</style>",
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7"'
        ' markerHeight="7" orient="auto"><path d="M0 0L8 4L0 8z" fill="#8a929c"/></marker></defs>',
        f'<rect class="ground" width="{WIDTH}" height="{height}"/>',
    ]
    lines += [_arrow([boxes[each] for each in way]) for way in ways]
    for number, level in enumerate(levels):
        y = boxes[level[0]].y + BOX_HEIGHT / 2 + 4
        lines.append(f'<text class="floor" x="6" y="{y:.0f}">{len(levels) - number}</text>')
        lines += [_drawn(room, boxes[room]) for room in level]
    return "\n".join([*lines, "</svg>", ""])


def _way(above: str, below: str, floor_of: dict[str, int]) -> list[str | Lane]:
    lanes: list[Lane] = [(below, n) for n in range(floor_of[above] + 1, floor_of[below])]
    return [above, *lanes, below]


def _ordered(levels: list[list[str]], ways: list[list[str | Lane]]) -> list[list[str | Lane]]:
    """Return rooms and lanes of each floor, ordered by the mean place of their neighbors."""
    rows: list[list[str | Lane]] = [list(level) for level in levels]
    for lane in sorted({each for way in ways for each in way if isinstance(each, tuple)}):
        rows[lane[1]].append(lane)
    links = nx.Graph(pair for way in ways for pair in pairwise(way))
    place = {each: n - len(row) / 2 for row in rows for n, each in enumerate(row)}
    for sweep in range(SWEEPS):
        for row in rows if sweep % 2 else reversed(rows):
            means = {each: fmean(place[other] for other in links[each]) for each in row}
            row.sort(key=lambda each: (means[each], str(each)))
            place |= {each: n - len(row) / 2 for n, each in enumerate(row)}
    return rows


def _boxes(rows: list[list[str | Lane]]) -> dict[str | Lane, Box]:
    boxes: dict[str | Lane, Box] = {}
    for number, row in enumerate(rows):
        widths = [ROOM_WIDTH if isinstance(each, str) else LANE_WIDTH for each in row]
        x = (WIDTH - sum(widths) - GAP * (len(row) - 1)) / 2
        for each, width in zip(row, widths, strict=True):
            boxes[each] = Box(x, MARGIN + number * FLOOR_HEIGHT, width)
            x += width + GAP
    return boxes


def _drawn(room: str, box: Box) -> str:
    kind = "room torch" if _loads_torch(room) else "room"
    middle = box.middle
    first, second = _purpose(room, int(box.width / 6.3))
    return (
        f'<rect class="{kind}" x="{box.x:.1f}" y="{box.y:.1f}" width="{box.width:.1f}"'
        f' height="{BOX_HEIGHT}" rx="6"/>'
        f'<text class="name" x="{middle:.1f}" y="{box.y + 20:.1f}" text-anchor="middle">'
        f"{room}</text>"
        f'<text class="purpose" x="{middle:.1f}" y="{box.y + 36:.1f}" text-anchor="middle">'
        f"{escape(first)}</text>"
        f'<text class="purpose" x="{middle:.1f}" y="{box.y + 49:.1f}" text-anchor="middle">'
        f"{escape(second)}</text>"
    )


def _arrow(boxes: list[Box]) -> str:
    """Return a smooth line through the middles of boxes, straight where it passes a floor."""
    path = f"M{boxes[0].middle:.1f} {boxes[0].y + BOX_HEIGHT:.1f}"
    for above, below in pairwise(boxes):
        begin, end = above.y + BOX_HEIGHT, below.y
        half = (begin + end) / 2
        path += f" C{above.middle:.1f} {half:.1f} {below.middle:.1f} {half:.1f}"
        path += f" {below.middle:.1f} {end:.1f}"
        if below is not boxes[-1]:
            path += f" V{end + BOX_HEIGHT:.1f}"
    return f'<path class="arrow" marker-end="url(#tip)" d="{path}"/>'


def _purpose(room: str, most: int) -> tuple[str, str]:
    """Return a room's purpose, from its docstring, in up to two lines."""
    text = (ast.get_docstring(ast.parse(_source(room).read_text())) or "").split("\n\n")[0]
    words = " ".join(text.split()).removesuffix(".").split()
    lines = [""]
    for word in words:
        if len(lines[-1]) + len(word) + 1 > most:
            lines.append("")
        lines[-1] = f"{lines[-1]} {word}".strip()
    return lines[0], (lines[1] + " …" if len(lines) > 2 else "".join(lines[1:2]))


def _loads_torch(room: str) -> bool:
    """Whether some file of a room imports torch at its top."""
    source = _source(room)
    files = source.parent.rglob("*.py") if source.name == "__init__.py" else [source]
    tops = (node for file in files for node in ast.parse(file.read_text()).body)
    names = (
        [each.name for each in node.names] if isinstance(node, ast.Import) else [node.module or ""]
        for node in tops
        if isinstance(node, ast.Import | ast.ImportFrom)
    )
    return any(name.split(".")[0] == "torch" for each in names for name in each)


def _source(room: str) -> Path:
    package = ROOT / "src" / "paceline" / room
    return package / "__init__.py" if package.is_dir() else package.with_suffix(".py")


def _room(module: str) -> str:
    return module.split(".")[1] if "." in module else ""


if __name__ == "__main__":
    PICTURE.write_text(picture())
    print(f"wrote {PICTURE.relative_to(Path.cwd())}", file=sys.stderr)
