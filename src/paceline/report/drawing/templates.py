"""What all pages have in common: how templates are filled, and the program that draws pictures."""

from functools import cache
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from paceline.report.drawing import units
from paceline.report.reading.failure import plain

if TYPE_CHECKING:
    import jinja2


def environment() -> "jinja2.Environment":
    """Fills the templates in `pages`; what a user wrote stays text."""
    import jinja2  # noqa: PLC0415

    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parents[1] / "pages"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters.update(
        plain=plain,
        milliseconds=units.milliseconds,
        duration=units.duration,
        size=units.size,
        percent=units.percent,
        energy=units.energy,
        count=units.count,
        or_dash=lambda number: "–" if number is None else f"{number:,}",
    )
    # What is not valid JSON must fail here, not in the reader's browser.
    made.policies["json.dumps_kwargs"] = {"allow_nan": False, "separators": (",", ":")}
    return made


@cache
def javascript(vl_convert: ModuleType) -> str:
    """Vega, Vega-Lite and vega-embed in one piece; made once, since it takes a second or two."""
    bundle: str = vl_convert.javascript_bundle()
    # In a string or a regular expression, where alone it can stand, this means the same.
    return bundle.replace("</script", "<\\/script").replace("<!--", "<\\!--")
