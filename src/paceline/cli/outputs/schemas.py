"""The JSON schema of each form of `--json`, from the types that the commands print."""

from collections.abc import Iterator
from typing import Any, get_type_hints

from pydantic import BaseModel, TypeAdapter, create_model

from paceline.checkpoints.ledger import EpochRecord
from paceline.cli.outputs.versions import full_name
from paceline.conformance.report import ConformanceReport
from paceline.report.run.section import SECTIONS
from paceline.specs import (
    SYNC_MODES,
    Answer,
    Cluster,
    DryRun,
    Learning,
    RankDryRun,
    StudyResult,
    SyncSettings,
    Traced,
)
from paceline.specs.base import Spec
from paceline.specs.finding import Finding
from paceline.specs.plans.site_comparison import SiteComparison
from paceline.testbed.status import NodeStatus, Status


class Error(Spec):
    """A command that failed before it had a result: any command."""

    error: str
    fix: str
    topic: str
    """Topic of `paceline help`."""


class Findings(Spec):
    """Findings on this machine: `doctor`."""

    findings: list[Finding]


class Check(Findings):
    """Findings about a training: `check`."""

    same: bool
    """Whether the training does the same on several workers."""


class SiteDraft(Spec):
    """A first site file: `doctor --site`."""

    file: str
    missing: list[str]
    """Settings that its user fills in."""


class Topic(Spec):
    """A topic of `help`."""

    topic: str
    title: str


class Help(Topic):
    """A topic with its text in Markdown: `help TOPIC`."""

    text: str


class Topics(Spec):
    """All topics: `help`."""

    topics: list[Topic]


class Starter(Spec):
    """A starter training: `init`."""

    file: str


class Ledger(Spec):
    """What a run's sample ledger says: `ledger`."""

    exact: bool
    """Whether no sample was seen twice, and none is missing from a complete epoch."""
    epochs: list[EpochRecord]


class Probe(Spec):
    """A measured cluster: `probe`."""

    file: str
    run: str
    seconds: float
    kernels: str | None
    """File of the measured kernels; null if they were left out."""
    kernels_cached: bool
    """Whether an earlier probe measured the kernels."""
    cluster: Cluster


class LearningProbe(Spec):
    """A training's measured critical batch: `probe --learning`."""

    file: str
    run: str
    learning: Learning


class CountedRank(RankDryRun):
    """A worker's memory and communication."""

    bytes_inside_node: int
    bytes_between_nodes: int


class CountedDryRun(DryRun):
    """Each worker's memory and communication: `run --dry-run`."""

    ranks: tuple[CountedRank, ...]


class Submitted(Spec):
    """A job that was submitted: `submit`, and `resume` on a cluster."""

    run: str
    job: str
    workers: int
    waits_for: str | None
    estimated_start: str | None


class SweptRun(Spec):
    """A run of a sweep; how it ended, with `--wait`."""

    run: str
    job: str
    arguments: list[str]
    status: str | None = None
    steps: int | None = None
    final_loss: float | None = None


class Sweep(Spec):
    """The runs of a sweep: `submit --array`."""

    runs: list[SweptRun]


class ComparedRun(Spec):
    """One of several runs."""

    number: int
    name: str
    path: str
    loss_at_equal_samples: float | None
    efficiency_per_worker: float | None
    figures: dict[str, Any]
    """As `paceline.run/1`."""


class Comparison(Spec):
    """Several runs, compared: `report` of several runs."""

    equal_samples: int
    fastest: int | None
    lowest_loss: int | None
    differs: dict[str, dict[str, list[int]]]
    """Settings that differ: numbers of the runs by value."""
    runs: list[ComparedRun]


def _fields(model: type[BaseModel]) -> dict[str, Any]:
    """Return the fields of a model, for another that has them, too."""
    return {name: (field.annotation, field) for name, field in model.model_fields.items()}


TracedWorker: Any = create_model(
    "TracedWorker",
    __base__=Spec,
    __doc__="A worker's profiled steps.",
    exposed_seconds=(float, ...),
    **_fields(Traced),
)


class Trace(Spec):
    """A merged trace: `trace`."""

    trace: str
    workers: list[TracedWorker]


class Up(Spec):
    """A testbed that was started: `testbed up`."""

    name: str
    head_address: str
    rootless: bool
    nodes: list[NodeStatus]
    seconds: float
    """Time to start."""


class Down(Spec):
    """A testbed that was removed: `testbed down`."""

    name: str
    state: str


_TYPES: dict[str, Any] = {
    "check": Check,
    "doctor": Findings,
    "doctor.devices": ConformanceReport,
    "doctor.site": SiteDraft,
    "error": Error,
    "help": Help,
    "help.topics": Topics,
    "init": Starter,
    "ledger": Ledger,
    "plan": Answer,
    "plan.compare": SiteComparison,
    "probe": Probe,
    "probe.learning": LearningProbe,
    "report.comparison": Comparison,
    "run.dry-run": CountedDryRun,
    "study": StudyResult,
    "submit": Submitted,
    "submit.array": Sweep,
    "testbed.down": Down,
    "testbed.node": NodeStatus,
    "testbed.status": Status,
    "testbed.up": Up,
    "trace": Trace,
}


def type_of(name: str) -> Any:
    """Return the type that a form prints."""
    return _run_figures() if name == "run" else _TYPES[name]


def json_schema(name: str, *, closed: bool = False) -> dict[str, Any]:
    """Return the JSON schema of a form; `closed` forbids fields that it does not name."""
    plain = TypeAdapter(type_of(name)).json_schema(mode="serialization")
    found: dict[str, Any] = _as_printed(_with_modes(plain), closed=closed)
    named = {"schema": {"const": full_name(name)}}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": full_name(name),
        **found,
        "properties": named | found["properties"],
        "required": ["schema", *found.get("required", [])],
    }


def _with_modes(schema: dict[str, Any]) -> dict[str, Any]:
    """Return a schema in which settings of synchronization are those of any mode."""
    definitions = schema.get("$defs", {})
    if SyncSettings.__name__ in definitions:
        kinds = [type(SYNC_MODES.get(name)) for name in SYNC_MODES.names]
        modes = [kind.model_json_schema(mode="serialization") for kind in kinds]
        for mode in modes:
            definitions |= mode.pop("$defs", {})
        definitions[SyncSettings.__name__] = {"anyOf": modes}
    return schema


def section_figures() -> Iterator[tuple[str, Any]]:
    """Yield the key of each section's figures, and their type; the key is empty without one."""
    for section in map(SECTIONS.get, SECTIONS.names):
        yield section.key, get_type_hints(type(section).figures).get("return", Any)


def _run_figures() -> Any:
    """Return a model of a run's figures: those of all sections, of other packages, too."""
    fields: dict[str, Any] = {}
    for key, figures in section_figures():
        if key:
            fields[key] = (figures, ...)
        else:
            fields |= _fields(figures) if isinstance(figures, type) else {}
    words = "A run's figures: `run`, `watch`, `report` of a run; with `--wait`, `submit`, `resume`."
    return create_model("Run", __base__=Spec, __doc__=words, **fields)


def _as_printed(schema: Any, *, closed: bool) -> Any:
    """Return a schema in which any number may be null: JSON has none that is not finite."""
    if isinstance(schema, list):
        return [_as_printed(each, closed=closed) for each in schema]
    if not isinstance(schema, dict):
        return schema
    found = {key: _as_printed(value, closed=closed) for key, value in schema.items()}
    if not closed and found.get("additionalProperties") is False:
        del found["additionalProperties"]
    if found.get("type") == "number":
        found["type"] = ["number", "null"]
    return found
