"""Settings of a spec on the command line: `key=value,…`."""

import difflib
from collections.abc import Collection, Iterable
from typing import Any, TypeVar

from pydantic import ValidationError

from paceline.specs.base import Spec, problem_of
from paceline.specs.errors import PacelineError

_Given = TypeVar("_Given", bound=Spec)


def with_settings(
    spec: _Given, text: str, *, option: str, what: str, fixed: Collection[str] = ()
) -> _Given:
    """Return the spec, changed by the settings in `text`.

    For messages, `option` is the whole value of the option, and `what` names the spec; `fixed`:
    keys that cannot be set.
    """
    kind = type(spec)
    known = [name for name in kind.model_fields if name not in fixed]
    given: dict[str, Any] = {}
    for word in filter(None, text.split(",")):
        key, equals, value = word.partition("=")
        check_keys([key], known, option=option, what=what)
        if not equals:
            raise PacelineError(
                f"{option}: the setting {key!r} has no value", fix=f"write {key}=VALUE"
            )
        given[key] = value
    try:
        return kind(**spec.model_dump(exclude_unset=True) | given)
    except ValidationError as error:
        raise first_error(error, option=option) from None


def check_keys(given: Iterable[str], known: Collection[str], *, option: str, what: str) -> None:
    """Refuse the first unknown key, and suggest the nearest known one."""
    for key in given:
        if key not in known:
            near = difflib.get_close_matches(key, known, n=1)
            hint = f"use {near[0]!r}, or one of" if near else "use one of"
            raise PacelineError(
                f"{option}: {key!r} is not a setting of {what}",
                fix=f"{hint}: {', '.join(known)}" if known else "leave it out: it has no settings",
            )


def first_error(error: ValidationError, *, option: str) -> PacelineError:
    """Return the first problem that pydantic found, as an error for the user."""
    first = error.errors()[0]
    name = ".".join(str(part) for part in first["loc"])
    return PacelineError(
        f"{option}: {name}={first['input']} is not valid: {problem_of(first)}",
        fix=f"give {name} another value, or leave it out",
    )
