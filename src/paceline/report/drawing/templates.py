"""The template environment and the chart JavaScript that all pages share."""

from functools import cache
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from paceline.report.reading.failure import plain
from paceline.specs import units

if TYPE_CHECKING:
    import jinja2


def environment() -> "jinja2.Environment":
    """Return the environment of the templates in `pages`; it escapes all text."""
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
        or_dash=units.or_dash,
    )
    # Invalid JSON must fail here, not in the reader's browser.
    made.policies["json.dumps_kwargs"] = {"allow_nan": False, "separators": (",", ":")}
    return made


@cache
def javascript(vl_convert: ModuleType) -> str:
    """Return Vega, Vega-Lite and vega-embed as one script; cached, since this takes seconds."""
    bundle: str = vl_convert.javascript_bundle()
    # These can only occur in a string or a regular expression, where the escape changes nothing.
    return bundle.replace("</script", "<\\/script").replace("<!--", "<\\!--")
