"""Models in one line of text: a family with its dimensions, or a well-known name.

    gpt: layers=96 width=12288 heads=96 seq=2k vocab=51200
    llama2-7b
    llama2-7b: seq=8k

Numbers may end in k, which is 1024.
"""

import tomllib
from functools import cache
from importlib.resources import files
from typing import Any

from pydantic import ValidationError

from paceline.profile.families import FAMILIES, Family
from paceline.specs.base import Spec, problem_of
from paceline.specs.errors import PacelineError
from paceline.specs.measurements.profile import Profile

KILO = 1024
MOST_DIGITS = 9
"""Digits of a dimension."""
WRITTEN = {"hidden": "width"}
"""Fields that users write by another name."""
FIELDS = {written: field for field, written in WRITTEN.items()}


class KnownModel(Spec):
    """A well-known model."""

    model: str
    """Its description in this language."""
    parameters: float
    """Parameters as published."""
    active: float | None = None
    """The same of a mixture of experts, of those that a token passes through."""
    source: str


def profile_of(text: str) -> Profile:
    """Return the profile of the model that `text` describes."""
    name, family, shape = parse_model(text)
    try:
        found = family.profile(shape)
    except ValidationError as error:
        problem = problem_of(error.errors()[0])
        raise PacelineError(
            f"the model {text!r} is none that a plan can be made for: {problem}",
            fix="give dimensions that a model can have",
        ) from None
    return found.model_copy(update={"name": name} if name in known() else {})


@cache
def known() -> dict[str, KnownModel]:
    """Return the well-known models by name."""
    table = tomllib.loads(files("paceline.profile").joinpath("known.toml").read_text())
    return {name: KnownModel.model_validate(entry) for name, entry in table.items()}


def parse_model(text: str) -> tuple[str, Family, Spec]:
    """Return the name, family and dimensions of the model that `text` describes."""
    name, _, written = (part.strip() for part in text.partition(":"))
    dimensions: dict[str, str] = {}
    kind = name
    if name in known():
        kind, _, usual = known()[name].model.partition(":")
        dimensions = _pairs(usual)
    if kind not in FAMILIES:
        raise PacelineError(
            f"there is no family of models {name!r}",
            fix=f"begin with one of {', '.join(FAMILIES)} and a colon, as in"
            f" {_example('gpt')!r}, or give one of {', '.join(known())}",
        )
    dimensions |= _pairs(written)
    return name, FAMILIES[kind], _shape(kind, dimensions)


def _pairs(written: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for piece in written.split():
        key, equals, value = piece.partition("=")
        if not (key and equals and value):
            raise PacelineError(
                f"{piece!r} is not a dimension", fix="write key=value, separated by spaces"
            )
        if key in found:
            raise PacelineError(f"{key} is given twice", fix="leave one of them out")
        found[key] = value
    return found


def _shape(kind: str, dimensions: dict[str, str]) -> Spec:
    family = FAMILIES[kind]
    keys = [WRITTEN.get(each, each) for each in family.shape.model_fields]
    for key in dimensions:
        if key not in keys:
            raise PacelineError(
                f"{kind} has no dimension {key!r}", fix=f"use some of {', '.join(keys)}"
            )
    values = {FIELDS.get(key, key): _number(key, value) for key, value in dimensions.items()}
    try:
        return family.shape.model_validate(values)
    except ValidationError as error:
        raise _explained(kind, dimensions, error) from None


def _number(key: str, value: str) -> int | str:
    """Return a number if it is one; else the text itself, for words such as yes and no."""
    digits, times = (value[:-1], KILO) if value[-1] in "kK" else (value, 1)
    if not digits.isdecimal():
        return value
    if len(digits) > MOST_DIGITS:
        raise PacelineError(
            f"{key}={value} is more than any model has", fix=f"write {key}=2048 or {key}=2k"
        )
    return int(digits) * times


def _explained(kind: str, dimensions: dict[str, str], error: ValidationError) -> PacelineError:
    """Return an error on missing dimensions, else on the first wrong one."""
    wrong: list[tuple[str, Any]] = []
    missing: list[str] = []
    for item in error.errors():
        field = str(item["loc"][0])
        key = WRITTEN.get(field, field)
        if item["type"] == "missing":
            missing.append(key)
        else:
            wrong.append((key, item))
    if missing:
        return PacelineError(
            f"{kind} needs {', '.join(missing)}", fix=f"write, for example, {_example(kind)!r}"
        )
    key, item = wrong[0]
    if item["type"].startswith("int_"):
        return PacelineError(
            f"{key}={dimensions[key]} is not a number",
            fix=f"write {key}=2048 or {key}=2k",
        )
    return PacelineError(
        f"{key}={dimensions[key]} is not valid: {problem_of(item)}", fix=f"give another {key}"
    )


def _example(kind: str) -> str:
    return f"{kind}: {FAMILIES[kind].example}"
