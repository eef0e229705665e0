"""Pages of the files that Paceline reads and writes: their settings, events and JSON forms."""

import json
from typing import Any, get_args, get_type_hints

from pydantic import BaseModel

from paceline.cli.help.topics import page_text
from paceline.cli.outputs.schemas import json_schema, section_figures, type_of
from paceline.cli.outputs.versions import VERSIONS, full_name
from paceline.specs import SYNC_MODES, Cluster, Job, Plan
from paceline.specs.runs import events
from paceline.specs.runs.event import Event
from paceline.specs.site_file import SiteFile
from scripts.reference.fields import (
    anchor,
    cell,
    first_paragraph,
    meaning,
    nested,
    stored_meaning,
    table,
)

FILES: dict[str, tuple[type[BaseModel], str]] = {
    "plan.toml": (Plan, "`paceline plan` writes it; `--plan` reads it; every run folder has one."),
    "cluster.toml": (Cluster, "`paceline probe` writes it; `paceline plan --cluster` reads it."),
    "site.toml": (SiteFile, "`paceline doctor --site` drafts it; all commands read it."),
    "job.toml": (Job, "Every run folder has one; Paceline alone writes it."),
}


def files_page() -> str:
    """Return the page of every setting of Paceline's TOML files."""
    lines = ["# Files", "", "Files are TOML. Units are in the names of settings.", ""]
    shown: set[type[BaseModel]] = set()
    for name, (model, purpose) in FILES.items():
        lines += [f"## {name} {{#{anchor(model)}}}", "", _described(model), "", purpose, ""]
        lines += [table(model), ""]
        shown.add(model)
        for each in nested(model):
            if each not in shown:
                shown.add(each)
                lines += [f"### {each.__name__} {{#{anchor(each)}}}", "", _described(each), ""]
                lines += [table(each), ""]
        if model is Plan:
            lines += _modes()
    return "\n".join(lines)


def _modes() -> list[str]:
    lines = [
        "### Synchronization modes {#sync-modes}",
        "",
        "`[sync]` has `mode` and the mode's settings.",
        "",
    ]
    for name in SYNC_MODES.names:
        kind = type(SYNC_MODES.get(name))
        lines += [f'#### mode = "{name}" {{#sync-{name}}}', "", _described(kind), ""]
        lines += [table(kind, without=["mode"]), ""]
    return lines


def _described(model: type[BaseModel]) -> str:
    return first_paragraph(model.__doc__)


def event_types() -> list[type[Event]]:
    """Return the classes of all events."""
    return list(get_args(get_args(events.AnyEvent)[0]))


def events_page() -> str:
    """Return the page of every event and its fields."""
    lines = [
        *("# Events", ""),
        "A run's folder has a file of events per node, `events/NODE.jsonl`, with one JSON object"
        " per line. `kind` names the event.",
        *("", "Every event has these fields:", "", table(Event)),
    ]
    of_all = set(Event.model_fields) | {"kind"}
    inside: list[type[BaseModel]] = []
    for each in event_types():
        kind, *_ = get_args(each.model_fields["kind"].annotation)
        lines += [f"## {kind} {{#{anchor(each)}}}", "", _described(each), ""]
        lines += [table(each, without=of_all), ""]
        inside += [model for model in nested(each) if not issubclass(model, Event)]
    lines += ["## Values in events", ""]
    for model in dict.fromkeys(inside):
        lines += [f"### {model.__name__} {{#{anchor(model)}}}", "", _described(model), ""]
        lines += [table(model), ""]
    return "\n".join(lines)


def json_pages() -> dict[str, str]:
    """Return the page of the forms of `--json`, and their JSON schemas."""
    lines = [page_text("json"), "", "## Forms", ""]
    found = {}
    for name in VERSIONS:
        schema = json_schema(name)
        file = f"schemas/{name}-{VERSIONS[name]}.json"
        found[file] = json.dumps(schema, indent=2) + "\n"
        lines += [f"### {full_name(name)} {{#{name.replace('.', '-')}}}", ""]
        lines += [cell(schema.get("description", "").split("\n\n")[0]), ""]
        lines += [f"[JSON schema]({file})", "", "| field | type | meaning |", "|---|---|---|"]
        meanings = _meanings(name)
        for field, value in schema["properties"].items():
            if field != "schema":
                words = cell(meanings.get(field, ""))
                lines.append(f"| `{field}` | {cell(_json_type(value, schema))} | {words} |")
        lines.append("")
    return {"json.md": "\n".join(lines)} | found


def _meanings(name: str) -> dict[str, str]:
    """Return what the fields of a form mean, from the docstrings of its types."""
    if name != "run":
        return _meanings_in(type_of(name))
    found: dict[str, str] = {}
    for key, figures in section_figures():
        models = [each for each in (figures, *get_args(figures)) if isinstance(each, type)]
        first = next((each for each in models if issubclass(each, BaseModel)), None)
        if key:
            words = first_paragraph(first.__doc__) if first else stored_meaning("Run", key)
            found |= {key: words}
        elif first is not None:
            found |= _meanings_in(first)
    return found


def _meanings_in(shape: type) -> dict[str, str]:
    if issubclass(shape, BaseModel):
        return {name: meaning(shape, name) for name in shape.model_fields}
    return {name: stored_meaning(shape.__name__, name) for name in get_type_hints(shape)}


def _json_type(value: dict[str, Any], schema: dict[str, Any]) -> str:
    if "$ref" in value:
        return _json_type(schema["$defs"][value["$ref"].rpartition("/")[2]], schema)
    if "const" in value or "enum" in value:
        return ", ".join(f"`{each}`" for each in value.get("enum", [value.get("const")]))
    if "anyOf" in value or "oneOf" in value:
        parts = [_json_type(each, schema) for each in value.get("anyOf", value.get("oneOf", []))]
        return " or ".join(dict.fromkeys(parts))
    kind = value.get("type", "any")
    if kind == "array":
        return f"array of {_json_type(value.get('items', {}), schema)}"
    return kind if isinstance(kind, str) else " or ".join(kind)
