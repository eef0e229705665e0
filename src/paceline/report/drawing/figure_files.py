"""Charts for papers and slides: black on white, one file each."""

from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

from paceline.report.drawing.chart import Chart, drawing_packages

PictureForm = Literal["svg", "png"]
WIDTH_PIXELS = 480
PNG_SCALE = 3.0
"""About 300 dpi for a chart as wide as a text column."""
FONT = "Liberation Sans, Arial, Helvetica, sans-serif"
"""If none of these is installed, vl-convert falls back to its built-in font."""


def on_paper(picture: Chart) -> dict[str, Any]:
    """Return the chart's specification with a fixed size and with colors that need no page."""
    spec: dict[str, Any] = _black(picture.spec)
    config = spec["config"] | {"font": FONT}
    return spec | {"width": WIDTH_PIXELS, "background": "white", "config": config}


def write_pictures(pictures: Sequence[Chart], folder: Path, form: PictureForm) -> list[Path]:
    """Write one file per chart, named by its key, and return the files."""
    _, vl_convert = drawing_packages()
    folder.mkdir(parents=True, exist_ok=True)
    files = []
    for picture in pictures:
        file = folder / f"{picture.key}.{form}"
        if form == "svg":
            file.write_text(as_svg(picture, vl_convert))
        else:
            file.write_bytes(vl_convert.vegalite_to_png(on_paper(picture), scale=PNG_SCALE))
        files.append(file)
    return files


def as_svg(picture: Chart, vl_convert: ModuleType) -> str:
    """Return a chart as the text of an SVG file."""
    svg: str = vl_convert.vegalite_to_svg(on_paper(picture))
    return svg


def _black(part: Any) -> Any:
    if isinstance(part, dict):
        return {key: _black(value) for key, value in part.items()}
    if isinstance(part, list):
        return [_black(value) for value in part]
    return "black" if part == "currentColor" else part
