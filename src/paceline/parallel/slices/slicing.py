"""Choose the layers to slice for tensor parallelism from a trace of the model's forward.

A pair of linear layers, the second fed by the first, needs one all-reduce: the first is sliced
along its outputs (columns), the second along its inputs (rows), and everything between them is
computed on slices.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from torch import nn

from paceline.parallel.forward_trace import Sources, Trace
from paceline.parallel.slices.sliceable import NAMES_SHOWN, Sliceable, impossible, requested_slices
from paceline.specs import Layout, PacelineError


@dataclass(frozen=True)
class Slicing:
    """How the layers of a model are sliced."""

    columns: dict[str, tuple[int, ...]]
    """Linear layers sliced along their outputs, with the sizes of the parts that the user's code
    splits their output into; one part if it does not split."""
    rows: frozenset[str]
    """Linear layers sliced along their inputs."""
    head: str | None
    """The linear layer that returns the model's output, sliced along its outputs."""
    embeddings: frozenset[str]
    """Embeddings sliced along their vocabulary."""
    whole: dict[str, str]
    """Linear layers that every worker computes in full, each with the reason."""


def find_slicing(model: nn.Module, seen: Trace, layout: Layout) -> Slicing:
    """Return the slicing of all layers that can be sliced, following the layout's instructions."""
    return _Search(model, seen, layout).slicing()


@dataclass
class _Roles:
    """The row layers, each with the column layers that feed it."""

    lone_columns: set[str]
    """Columns that the user's layout asks for."""
    rows: dict[str, Sources] = field(default_factory=dict)
    guests: dict[str, Sources] = field(default_factory=dict)
    """Other inputs of each row layer, such as a learned attention bias."""

    @property
    def columns(self) -> set[str]:
        return self.lone_columns.union(*self.rows.values())


class _Search:
    def __init__(self, model: nn.Module, seen: Trace, layout: Layout) -> None:
        self._kind = type(model).__name__
        self._seen = seen
        self._ways = layout.tensor
        self._sliceable = Sliceable(model, seen, self._ways)
        self._layers = self._sliceable.linear
        self._sources: dict[str, Sources] = {}
        for call in seen.layers:
            before = self._sources.get(call.name, frozenset())
            self._sources[call.name] = before | call.sources
        self._takes_input = {call.name for call in seen.layers if not call.sources}
        firsts = (
            call.sources
            for call in seen.layers
            if call.name in self._layers and not call.sources & self._layers.keys()
        )
        self._stream = seen.output.union(*firsts)
        """Values that bypass the pairs of layers, and are no guests of theirs."""
        self._requested = requested_slices(layout, self._layers)
        self._never = dict(self._sliceable.unfit)
        """Layers that cannot be sliced, and why; below: not as columns, and not as rows."""
        self._no_columns: dict[str, str] = {}
        self._no_rows: dict[str, str] = {}

    def slicing(self) -> Slicing:
        for name, why in impossible(self._requested, self._sliceable, self._seen.parts, self._ways):
            self._refuse_told(name, why)
        roles = self._settled()
        head = self._head(roles)
        embeddings = self._sliceable.embeddings(head)
        if head is not None and self._sliceable.sharing_with(head) - embeddings:
            self._never[head] = "it shares its weight with an embedding that cannot be sliced"
            head, embeddings = None, self._sliceable.embeddings(None)
        columns = roles.columns - {head}
        for name in self._requested.keys() & (columns | roles.rows.keys()):
            if others := self._sliceable.sharing_with(name):
                self._refuse_told(name, f"it shares its weight with {min(others)}")
        taken = columns | roles.rows.keys() | {head}
        whole = {name: self._reason(name) for name in self._layers if name not in taken}
        if len(whole) == len(self._layers):
            self._refuse(whole)
        return Slicing(
            columns={name: self._parts(name, roles) for name in sorted(columns)},
            rows=frozenset(roles.rows),
            head=head,
            embeddings=embeddings,
            whole=whole,
        )

    def _settled(self) -> _Roles:
        """Assign roles, remove those that fail, and repeat until all roles work."""
        while True:
            roles = self._roles()
            flaws = dict(self._flawed_columns(roles))
            if not flaws:
                return roles
            self._no_columns |= flaws
            for row, columns in roles.rows.items():
                if flawed := flaws.keys() & columns:
                    self._no_rows[row] = f"its input comes from {min(flawed)}, which is not sliced"

    def _roles(self) -> _Roles:
        roles = _Roles({name for name, to in self._requested.items() if to == "columns"})
        for name, sources in self._sources.items():  # in the order of the first calls
            if name not in self._layers or name in roles.columns:
                continue
            columns = frozenset(each for each in sources if self._can_be_column(each, roles))
            guests = sources - columns
            fits = columns and not guests & (self._stream | self._layers.keys())
            if self._requested.get(name) == "rows" or (fits and self._can_be_row(name)):
                roles.rows[name], roles.guests[name] = columns, guests
        return roles

    def _can_be_row(self, name: str) -> bool:
        if name in self._requested or name in self._never or name in self._no_rows:
            return False
        if name in self._takes_input or name in self._sources[name]:
            return False  # called several times, and not always on the output of columns
        inputs, outputs = self._sliceable.sizes(name)
        if name in self._seen.output and (outputs > inputs or self._sliceable.sharing_with(name)):
            return False  # a head: sliced by rows, it would give every worker all logits
        if inputs % self._ways:
            self._no_rows[name] = f"its {inputs} inputs cannot be divided by {self._ways}"
        return name not in self._no_rows

    def _can_be_column(self, name: str, roles: _Roles) -> bool:
        return (
            name in self._layers
            and name not in roles.rows
            and name not in self._never
            and name not in self._no_columns
            and self._requested.get(name, "columns") == "columns"
        )

    def _flawed_columns(self, roles: _Roles) -> Iterator[tuple[str, str]]:
        columns = roles.columns
        for name in columns - self._requested.keys():
            reason = self._leak(name, roles, columns) or self._indivisible(name, roles)
            if reason:
                yield name, reason

    def _leak(self, column: str, roles: _Roles, columns: set[str]) -> str | None:
        """Return where a column's output is used unsliced, or None."""
        if column in self._seen.output:
            return "its output leaves the model"
        guests = [roles.guests[row] for row, taken in roles.rows.items() if column in taken]
        if reason := self._combined(column, columns.union(*guests)):
            return reason
        for name, sources in self._sources.items():
            if column in sources and name in self._layers and name not in roles.rows:
                return f"{name}, which uses its output, is not sliced"
        return None

    def _indivisible(self, column: str, roles: _Roles) -> str | None:
        parts = self._parts(column, roles)
        for part in parts:
            if part % self._ways:
                what = f"its {part} outputs" if len(parts) == 1 else f"a part of {part} outputs"
                return f"{what} cannot be divided by {self._ways}"
        for heads in sorted(self._seen.heads.get(column, ())):
            if heads % self._ways and heads != len(parts):
                return f"its {heads} heads cannot be divided by {self._ways}"
        return None

    def _parts(self, column: str, roles: _Roles) -> tuple[int, ...]:
        """Return the sizes of a column's output parts, such as queries, keys and values."""
        _, outputs = self._sliceable.sizes(column)
        parts = self._seen.parts.get(column, ())
        if sum(parts) == outputs:
            return parts
        # Unfolded into (3, heads, …), the parts lie one after the other, each as wide as the row.
        for row, columns in roles.rows.items():
            inputs, _ = self._sliceable.sizes(row)
            count, rest = divmod(outputs, inputs)
            unfolded = count > 1 and not rest and count in self._seen.heads.get(column, ())
            if unfolded and columns == {column}:
                return (inputs,) * count
        return (outputs,)

    def _head(self, roles: _Roles) -> str | None:
        """Return the last layer of the model, if its output is combined with no other layer's."""
        paired = roles.rows.keys() | set().union(*roles.rows.values())
        ends = [
            name
            for name in self._seen.output & (self._layers.keys() - paired - self._never.keys())
            if self._requested.get(name, "columns") == "columns"
            and all(mix == {name} for mix in self._seen.mixtures if name in mix)
        ]
        if len(ends) != 1:
            self._never |= dict.fromkeys(ends, "the model returns results of several layers")
            return None
        _, outputs = self._sliceable.sizes(ends[0])
        if not self._sliceable.gives_all_a_share(outputs):
            self._never[ends[0]] = f"its {outputs} outputs cannot be divided by {self._ways}"
            return None
        return ends[0]

    def _reason(self, name: str) -> str:
        if self._requested.get(name) == "whole":
            return "the layout says so"
        for reasons in (self._never, self._no_columns, self._no_rows):
            if name in reasons:
                return reasons[name]
        for row in self._no_rows:
            if name in self._sources[row]:
                return f"{row}, which uses its output, is not sliced along its inputs"
        return self._combined(name, {name}) or "no other linear layer uses its output"

    def _combined(self, name: str, known: set[str]) -> str | None:
        """Return the reason if a layer's output is combined with layers outside `known`, or
        None."""
        strangers = (mix - known for mix in self._seen.mixtures if name in mix)
        first = min(filter(None, strangers), key=lambda each: (len(each), min(each)), default=None)
        return f"its output is combined with that of {min(first)}" if first else None

    def _refuse_told(self, name: str, why: str) -> None:
        raise PacelineError(
            f"`slices` says {self._requested[name]} for {name}, but {why}",
            fix=f"set {name} to whole, or use another number for --tensor",
        )

    def _refuse(self, reasons: dict[str, str]) -> None:
        lines = [f"\n    {name}: {why}" for name, why in reasons.items()]
        more = len(lines) - NAMES_SHOWN
        raise PacelineError(
            f"tensor={self._ways} was given, but no layer of {self._kind} can be sliced"
            f"{':' if lines else ': it has no linear layers'}{''.join(lines[:NAMES_SHOWN])}"
            + (f"\n    and {more} more" if more > 0 else ""),
            fix="leave --tensor out, or set columns and rows with `slices` in the plan",
        )
