"""The base of every spec: frozen, strict about unknown keys, readable and writable as TOML."""

import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

import tomli_w
from pydantic import BaseModel, ConfigDict, ValidationError, model_validator
from pydantic_core import ErrorDetails

from paceline.specs.errors import PacelineError
from paceline.specs.owned_files import read_bounded

MOST_BYTES = 4 << 20
"""Maximum size of a spec's file: a study of ten thousand points has less."""
LEAST_FIGURE, MOST_FIGURE, MOST_COUNT = 1e-30, 1e30, 10**18
"""Smallest and largest figure, and largest integer, to compute with: products of several stay
finite, and NumPy has the integers."""


class WrongValue(ValueError):
    """A wrong value of a spec, with its own fix; a validator raises it for pydantic to report."""

    def __init__(self, error: PacelineError) -> None:
        super().__init__(f"{error.problem}; {error.fix}")
        self.problem, self.fix, self.topic = error.problem, error.fix, error.topic


def problem_of(item: ErrorDetails) -> str:
    """Return what is wrong, without what pydantic sets before a validator's own words."""
    cause = item.get("ctx", {}).get("error")
    return str(cause) if cause else item["msg"]


class Spec(BaseModel):
    """A small frozen model that people can read and write as TOML."""

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="constants")

    def to_toml(self) -> str:
        """Return this spec as TOML, without unset fields."""
        return tomli_w.dumps(self.model_dump(mode="json", exclude_none=True))

    def write(self, path: Path) -> None:
        """Write this spec to `path` as TOML."""
        path.write_text(self.to_toml())

    @classmethod
    def read(cls, path: Path, *, own: bool = False, or_root: bool = False) -> Self:
        """Read a spec from a TOML file; errors name the wrong keys.

        `own`, `or_root`: whose file it must be; see `read_bounded`.
        """
        return cls.checked(cls.read_toml(path, own=own, or_root=or_root), path)

    @classmethod
    def read_toml(cls, path: Path, *, own: bool = False, or_root: bool = False) -> dict[str, Any]:
        """Return the contents of a TOML file, not yet validated as a spec."""
        try:
            words = read_bounded(path, MOST_BYTES, own=own, or_root=or_root)
            return tomllib.loads(words.decode())
        except FileNotFoundError:
            raise PacelineError(
                f"{path} does not exist", fix=f"give the path of a {cls.__name__.lower()} file"
            ) from None
        except OSError as error:
            raise PacelineError(
                f"{path} cannot be read: {error.strerror}",
                fix=f"give the path of a {cls.__name__.lower()} file",
            ) from None
        # Besides invalid TOML: binary data, integers with thousands of digits, too deep nesting.
        except (ValueError, RecursionError) as error:
            raise PacelineError(
                f"{path} is not valid TOML: {error}", fix="mend that line"
            ) from None

    @classmethod
    def checked(cls, written: dict[str, Any], path: Path) -> Self:
        """Return the validated spec; `path` is named in errors."""
        try:
            return cls.model_validate(written)
        except ValidationError as error:
            for item in error.errors():
                cause = item.get("ctx", {}).get("error")
                if isinstance(cause, WrongValue):
                    raise PacelineError(
                        f"{path}: {cause.problem}", fix=cause.fix, about=cause.topic
                    ) from None
            wrong = "; ".join(
                f"{'.'.join(str(part) for part in item['loc']) or 'file'}: {problem_of(item)}"
                for item in error.errors()
            )
            raise PacelineError(
                f"{path} is not a valid {cls.__name__.lower()}: {wrong}",
                fix=f"keys that a {cls.__name__.lower()} has: {', '.join(cls.model_fields)}",
            ) from None


class FiniteSpec(Spec):
    """A spec in which no number is infinite, undefined or out of all bounds: figures to compute
    with."""

    model_config = ConfigDict(allow_inf_nan=False)

    @model_validator(mode="after")
    def _can_be_computed_with(self) -> Self:
        for name, value in self:
            for number in _numbers(value):
                most = MOST_COUNT if isinstance(number, int) else MOST_FIGURE
                if number and not LEAST_FIGURE <= abs(number) <= most:
                    size = "large" if abs(number) > most else "small"
                    raise ValueError(f"{name} is too {size} to compute with")
        return self


def _numbers(value: object) -> Iterator[int | float]:
    """Yield the numbers in a field's value, but not those of specs in it."""
    if isinstance(value, int | float):
        yield value
    elif isinstance(value, dict):
        yield from _numbers(tuple(value.values()))
    elif isinstance(value, tuple):
        for each in value:
            yield from _numbers(each)
