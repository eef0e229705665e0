"""Checking what `--json` prints against the published JSON schemas."""

import re
from functools import cache
from typing import Any

import jsonschema

from paceline.cli.outputs.schemas import json_schema
from paceline.cli.outputs.versions import VERSIONS

_NAME = re.compile(r"paceline\.([a-z.-]+)/(\d+)")


@cache
def _validator(name: str) -> jsonschema.Draft202012Validator:
    return jsonschema.Draft202012Validator(json_schema(name, closed=True))


def checked(printed: Any) -> dict[str, Any]:
    """What was printed, without `schema`; fails if a field is missing, wrong or not documented."""
    found = _NAME.fullmatch(printed["schema"])
    assert found, printed["schema"]
    assert VERSIONS[found[1]] == int(found[2])
    _validator(found[1]).validate(printed)
    return {name: value for name, value in printed.items() if name != "schema"}


def name_of(printed: Any) -> str:
    """The name of a form without its version."""
    found = _NAME.fullmatch(printed["schema"])
    assert found, printed["schema"]
    return found[1]
