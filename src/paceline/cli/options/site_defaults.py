"""Defaults of a command's options from the site's files."""

import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from paceline.cli.console import say

if TYPE_CHECKING:
    from paceline.specs import Prices
    from paceline.specs.site_file import SiteFile

SYSTEM_FILE = Path("/etc/paceline/site.toml")
HERE = Path("site.toml")

Site = Annotated[
    Path | None,
    typer.Option(
        "--site",
        metavar="FILE",
        help="Site file with defaults of these options; it goes before the usual ones"
        f" ({SYSTEM_FILE}, {HERE}, ~/.config/paceline/{HERE}).",
    ),
]
_PRICES = "paceline.site_prices"
_PATH = re.compile("DIR|FILE|FOLDER")
"""Part of the metavars of options that name files or folders."""


def site_defaults(context: typer.Context, given: dict[str, Any]) -> dict[str, Any]:
    """Return the values that the site files have for the options of the context's command.

    `given`: what the user gave on the command line. A line on standard error says which of the
    other options a file sets.
    """
    defaults: dict[str, Any] = {}
    for file in _paths(given.get("site"), given.get("testbed")):
        site = read_site(file)
        context.meta[_PRICES] = site.prices or site_prices(context)
        found = _of_command(context, file, site)
        defaults |= found
        shown = " ".join(f"--{key.replace('_', '-')}" for key in found if key not in given)
        say(f"{file} sets {shown}", unless=not shown or bool({"quiet", "json"} & given.keys()))
    return defaults


def site_prices(context: typer.Context) -> "Prices | None":
    """Return the prices of the site files that apply to a command."""
    prices: Prices | None = context.meta.get(_PRICES)
    return prices


def _paths(site: str | Path | None, testbed: str | None) -> list[Path]:
    """Return the site files that apply, the strongest last.

    A testbed is another cluster than the one around it: there, only a file that is given counts.
    """
    settings = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
    usual = (SYSTEM_FILE, HERE, settings / "paceline" / HERE)
    found = [] if testbed else [file for file in usual if file.exists()]
    return [*found, Path(site)] if site else found


def read_site(file: Path) -> "SiteFile":
    """Read a site file. Jobs run what it says, so only its user or root may have written it."""
    from paceline.specs.site_file import SiteFile

    return SiteFile.read(file, own=True, or_root=True)


def _of_command(context: typer.Context, file: Path, site: "SiteFile") -> dict[str, Any]:
    """Return the options of this command that a file sets; refuse those that no command has."""
    from paceline.specs import PacelineError

    assert context.parent is not None
    commands: dict[str, Any] = context.parent.command.commands  # type: ignore[attr-defined]
    own = {each.name: each for each in context.command.get_params(context)}
    everywhere = {each.name for command in commands.values() for each in command.params}
    for name, known in _written(site, commands, own.keys(), everywhere, str(context.info_name)):
        if name not in known:
            raise PacelineError(
                f"{file}: [options] sets {name!r}, which is no option",
                fix="use an option's long name with _ for -, such as account or save_every; under"
                " [options.submit], those of `paceline submit --help`",
            )
    found = {}
    for name, value in site.of_command(str(context.info_name)).items():
        if name in own:
            found[name] = _filled(own[name], value, file)
    return found


def _written(
    site: "SiteFile",
    commands: Iterable[str],
    own: Iterable[str],
    everywhere: Iterable[str],
    command: str,
) -> Iterable[tuple[str, Iterable[str]]]:
    """Yield each name that a file has as an option, and the names that there are."""
    for key, value in site.options.items():
        if not isinstance(value, dict):
            yield key, everywhere
        elif key not in commands:
            yield key, commands
        elif key == command:
            yield from ((name, own) for name in value)


def _filled(parameter: Any, value: Any, file: Path) -> Any:
    """Return an option's value; in names of files, variables are filled in."""
    if getattr(parameter, "multiple", False):
        return [_one_filled(parameter, each, file) for each in _listed(value)]
    return _one_filled(parameter, value, file)


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _one_filled(parameter: Any, value: Any, file: Path) -> Any:
    from paceline.specs import PacelineError

    if not isinstance(value, str | int | float):
        raise PacelineError(
            f"{file}: {parameter.name} is {value!r}, which is no value of an option",
            fix="write a text in quotes, a number, true or false",
        )
    if not isinstance(value, str) or not _PATH.search(parameter.metavar or ""):
        return value
    path = os.path.expandvars(value)
    path = str(Path(path).expanduser()) if path.startswith("~") else path  # it may be a URL
    if "$" in path:
        raise PacelineError(
            f"{file}: {parameter.name} is {path}, but that variable is not set",
            fix="set it, or write the folder's name",
        )
    return path
