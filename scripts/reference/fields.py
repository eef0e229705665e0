"""Tables of the fields of pydantic models: names, types, defaults and docstrings, from the code."""

import ast
import inspect
import re
import textwrap
import tomllib
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from paceline.specs import SyncSettings

_LIMITS = {"ge": "≥ {}", "gt": "> {}", "le": "≤ {}", "lt": "< {}"}
_CODE_OR_BAR = re.compile(r"(`[^`]*`)|\|")
_HUGE = 1e10
"""Limits beyond this only guard against damaged files: a reader need not know them."""


@cache
def stored_meanings() -> dict[str, dict[str, str]]:
    """Return what fields without a docstring mean, by the name of their type, or `any`."""
    return tomllib.loads(Path(__file__).with_name("meanings.toml").read_text())


def meaning(model: type[BaseModel], name: str) -> str:
    """Return the docstring below a field, or else its stored meaning."""
    return docs_of(model).get(name) or stored_meaning(model.__name__, name)


def stored_meaning(model: str, name: str) -> str:
    """Return what a field means whose docstring does not say it."""
    stored = stored_meanings()
    return stored.get(model, {}).get(name) or stored["any"].get(name, "")


def docs_of(model: type[BaseModel]) -> dict[str, str]:
    """Return the docstring below each field of a model, those of its bases included."""
    found: dict[str, str] = {}
    for each in reversed(model.__mro__):
        if issubclass(each, BaseModel) and each.__module__.startswith("paceline"):
            found |= _own_docs(each)
    return found


def _own_docs(model: type[BaseModel]) -> dict[str, str]:
    try:
        source = textwrap.dedent(inspect.getsource(model))
    except OSError:  # made by create_model
        return {}
    (tree,) = ast.parse(source).body
    assert isinstance(tree, ast.ClassDef)
    found = {}
    for statement, after in zip(tree.body, tree.body[1:], strict=False):
        if isinstance(statement, ast.AnnAssign) and isinstance(after, ast.Expr):
            assert isinstance(statement.target, ast.Name)
            found[statement.target.id] = str(ast.literal_eval(after.value))
    return found


def table(model: type[BaseModel], *, without: Iterable[str] = ()) -> str:
    """Return a Markdown table of a model's fields."""
    shown = {name: field for name, field in model.model_fields.items() if name not in set(without)}
    if not shown:
        return "No fields.\n"
    rows = [
        f"| `{name}` | {cell(type_words(field.annotation, field.metadata))} | {_default(field)} |"
        f" {cell(meaning(model, name))} |"
        for name, field in shown.items()
    ]
    return "\n".join(["| field | type | default | meaning |", "|---|---|---|---|", *rows, ""])


def type_words(annotation: Any, metadata: Iterable[Any] = ()) -> str:
    """Return a type in a few words, with its limits."""
    words = _type_words(annotation)
    limits = [
        form.format(f"{value:g}")
        for each in metadata
        for name, form in _LIMITS.items()
        if isinstance(value := getattr(each, name, None), int | float) and abs(value) < _HUGE
    ]
    return " ".join([words, *limits])


def _type_words(annotation: Any) -> str:  # noqa: PLR0911 -- one line per kind of type
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return type_words(arguments[0], arguments[1:])
    if origin is Literal:
        return ", ".join(f"`{each}`" for each in arguments)
    if origin in (Union, UnionType):
        parts = [type_words(each) for each in arguments if each is not NoneType]
        return " or ".join(parts) + (", may be unset" if NoneType in arguments else "")
    if origin in (list, tuple):
        inside = [type_words(each) for each in arguments if each is not Ellipsis]
        return f"list of {', '.join(inside)}"
    if origin is dict:
        return f"table: {type_words(arguments[0])} to {type_words(arguments[1])}"
    if annotation is SyncSettings:
        return "[mode and its settings](files.md#sync-modes)"
    plain = {str: "text", int: "integer", float: "number", bool: "true or false", Any: "any value"}
    if annotation in plain:
        return plain[annotation]
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return f"[{annotation.__name__}](#{anchor(annotation)})"
    return str(getattr(annotation, "__name__", annotation))


def anchor(model: type[BaseModel]) -> str:
    """Return the anchor of a model's section."""
    return re.sub(r"(?<!^)(?=[A-Z])", "-", model.__name__).lower()


def nested(model: type[BaseModel]) -> list[type[BaseModel]]:
    """Return a model and those in its fields, each once, in order of first use."""
    found: dict[type[BaseModel], None] = {}
    waiting = [model]
    while waiting:
        each = waiting.pop(0)
        if each not in found:
            found[each] = None
            for field in each.model_fields.values():
                waiting += _models_in(field.annotation)
    return list(found)


def _models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    is_model = isinstance(annotation, type) and issubclass(annotation, BaseModel)
    if is_model and annotation is not SyncSettings:  # the modes have sections of their own
        yield annotation
    for each in get_args(annotation):
        yield from _models_in(each)


def first_paragraph(docstring: str | None) -> str:
    """Return the first paragraph of a docstring in one line."""
    return " ".join(inspect.cleandoc(docstring or "").split("\n\n")[0].split())


def cell(text: str) -> str:
    """Return a text as the cell of a table: escape bars, except in code, which shows escapes."""
    return _CODE_OR_BAR.sub(lambda found: found[1] or r"\|", " ".join(text.split()))


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    default = field.get_default(call_default_factory=True, validated_data={})
    if default is None or default == ():
        return "unset"
    if isinstance(default, BaseModel) or default in ({}, []):
        return "its defaults" if isinstance(default, BaseModel) else "empty"
    return f"`{str(default).lower() if isinstance(default, bool) else default}`"
