"""Settings of a spec as the command line has them: `key=value,…`."""

from collections.abc import Collection
from typing import Any, TypeVar

from pydantic import ValidationError

from paceline.specs.base import Spec
from paceline.specs.errors import PacelineError

_Given = TypeVar("_Given", bound=Spec)


def with_settings(
    spec: _Given, words: str, *, option: str, what: str, fixed: Collection[str] = ()
) -> _Given:
    """The spec with settings changed. `option` is what was given in all, `what` its settings are
    of; `fixed` ones are not set in this way."""
    kind = type(spec)
    given: dict[str, Any] = {}
    for word in filter(None, words.split(",")):
        key, equals, value = word.partition("=")
        if not equals or key not in kind.model_fields or key in fixed:
            known = ", ".join(name for name in kind.model_fields if name not in fixed)
            raise PacelineError(
                f"{option}: {word!r} is not a setting of {what}",
                fix=f"write key=value with one of {known}",
            )
        given[key] = value
    try:
        return kind(**spec.model_dump(exclude_unset=True) | given)
    except ValidationError as error:
        first = error.errors()[0]
        name = ".".join(str(part) for part in first["loc"])
        raise PacelineError(
            f"{option}: {name}={first['input']} cannot be: {first['msg']}",
            fix=f"give {name} another value, or leave it out",
        ) from None
