"""Takes the pictures of pages in docs/images, of real runs and studies.

`python docs/pictures/screens.py report runs/gpt-20260105-101500` makes docs/images/report.png of
one run; `comparison` takes several runs, `study` the folder of a study.
"""

import subprocess
import sys
import tempfile
from io import BytesIO
from pathlib import Path

from PIL import Image

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests"))

from browser import browser  # noqa: E402

WIDTH = 1200
HEIGHTS = {"report": 900, "study": 1250, "comparison": 1100, "quality": 1100}
COLORS = 256
"""Enough for a page, in a file half as large."""


def main() -> None:
    """Write the report with the command, as a user would, and look at it."""
    name, *paths = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder, browser(Path(folder)) as chromium:
        page = Path(folder) / "page.html"
        command = [sys.executable, "-m", "paceline", "report", *paths, "-o", str(page)]
        subprocess.run(command, check=True)
        chromium.show(page, width=WIDTH, height=HEIGHTS[name])
        shot = chromium.screenshot(whole=False)
    all_colors = Image.open(BytesIO(shot)).convert("RGB")
    # The median cut would give small parts of a chart their neighbors' color.
    few = all_colors.quantize(COLORS, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
    few.save(ROOT / "docs" / "images" / f"{name}.png", optimize=True)


if __name__ == "__main__":
    main()
