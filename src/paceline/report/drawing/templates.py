"""The template environment, the chart JavaScript and the security policy that all pages share."""

import base64
import hashlib
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from paceline.report.reading.failure_cause import plain
from paceline.specs import units

if TYPE_CHECKING:
    import jinja2

PAGES = Path(__file__).parents[1] / "pages"


def environment() -> "jinja2.Environment":
    """Return the environment of the templates in `pages`; it escapes all text."""
    import jinja2  # noqa: PLC0415

    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(PAGES),
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
    style, drawing_script = ((PAGES / name).read_text() for name in ("page.css", "drawing.js"))

    def security_policy(javascript: str) -> str:
        scripts = _hashes(javascript, drawing_script) if javascript else "'none'"
        return (
            f"default-src 'none'; script-src {scripts}; style-src {_hashes(style)}; "
            "img-src data: blob:; base-uri 'none'; form-action 'none'"
        )

    made.globals.update(style=style, drawing_script=drawing_script, security_policy=security_policy)
    # Invalid JSON must fail here, not in the reader's browser.
    made.policies["json.dumps_kwargs"] = {"allow_nan": False, "separators": (",", ":")}
    return made


@cache
def javascript(vl_convert: ModuleType) -> str:
    """Return Vega, Vega-Lite and vega-embed as one script; cached, since this takes seconds."""
    bundle: str = vl_convert.javascript_bundle()
    # These can only occur in a string or a regular expression, where the escape changes nothing.
    return bundle.replace("</script", "<\\/script").replace("<!--", "<\\!--")


def _hashes(*inline: str) -> str:
    """Return the sources that allow these inline texts, and no others, in a security policy."""
    digests = (hashlib.sha256(text.encode()).digest() for text in inline)
    return " ".join(f"'sha256-{base64.b64encode(digest).decode()}'" for digest in digests)
