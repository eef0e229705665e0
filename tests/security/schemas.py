"""Values that a JSON schema allows, and ones that it nearly allows: what parsers must withstand."""

import copy
from typing import Any

from hypothesis import strategies as st

NASTY = "</script><script>alert(1)</script><!--<img src=x onerror=alert(2)>"
"""Would do something in a browser if it were not escaped."""

HOSTILE: list[Any] = [
    None, True, -1, 0, 2**63, -(10**30), 1e308, float("inf"), float("nan"),
    "", NASTY, "../../x", "\x00", "\x1b[2J", "[bold]", [], {}, [[]], {"a": {"b": []}},
]  # fmt: skip

_NUMBERS = [0.0, 0.1, 1.7e9, -1.0, 1e300, -1e300, 5e-324, float("inf"), float("nan")]
_TEXTS = st.sampled_from(["", "n1", "cpu", NASTY, "\n", "\x1b[2J\x07", "[/bold]", "é" * 50])


def allowed(schema: dict[str, Any], definitions: dict[str, Any] | None = None) -> Any:
    """A strategy of values that the schema allows, its extremes among them."""
    known = schema.get("$defs", definitions or {})
    match schema:
        case {"$ref": name}:
            return st.deferred(lambda: allowed(known[name.rpartition("/")[2]], known))
        case {"const": value}:
            return st.just(value)
        case {"enum": values}:
            return st.sampled_from(values)
        case {"anyOf": choices} | {"oneOf": choices}:
            return st.one_of([allowed(each, known) for each in choices])
        case {"type": "object", "properties": fields}:
            must = set(schema.get("required", ())) | {"kind"} & fields.keys()
            named = {name: allowed(each, known) for name, each in fields.items()}
            return st.fixed_dictionaries(
                {name: each for name, each in named.items() if name in must},
                optional={name: each for name, each in named.items() if name not in must},
            )
        case {"type": "object"}:
            inner = schema.get("additionalProperties")
            values = allowed(inner, known) if isinstance(inner, dict) else st.none()
            return st.dictionaries(_TEXTS, values, max_size=3)
        case {"type": "array", "prefixItems": items}:
            return st.tuples(*(allowed(each, known) for each in items)).map(list)
        case {"type": "array"}:
            least = schema.get("minItems", 0)
            return st.lists(allowed(schema.get("items", {}), known), min_size=least, max_size=4)
        case {"type": "integer"}:
            return _within(schema, st.sampled_from([0, 1, 2, 5, -1, 2**40, -(2**70), 10**400]))
        case {"type": "number"}:
            return _within(schema, st.sampled_from(_NUMBERS))
        case {"type": "boolean"}:
            return st.booleans()
        case {"type": "string"}:
            return _TEXTS
    return st.sampled_from(HOSTILE)


def _within(schema: dict[str, Any], numbers: Any) -> Any:
    low, high = schema.get("minimum"), schema.get("maximum")
    above, below = schema.get("exclusiveMinimum"), schema.get("exclusiveMaximum")
    return (numbers | st.sampled_from([1, 100])).filter(
        lambda number: (
            (low is None or number >= low)
            and (high is None or number <= high)
            and (above is None or number > above)
            and (below is None or number < below)
        )
    )


@st.composite
def spoilt(draw: st.DrawFn, values: Any) -> Any:
    """One of these values, with something in it replaced, left out or added."""
    whole = copy.deepcopy(draw(values))  # what is drawn again must not have changed
    placement = whole
    while True:
        inner = list(placement.values() if isinstance(placement, dict) else placement)
        deeper = [each for each in inner if isinstance(each, dict | list) and each]
        if not deeper or draw(st.booleans()):
            break
        placement = draw(st.sampled_from(deeper))
    keys = list(placement) if isinstance(placement, dict) else list(range(len(placement)))
    if isinstance(placement, dict):
        keys.append("more")
    key = draw(st.sampled_from(keys))
    if draw(st.booleans()) or key == "more":
        placement[key] = draw(st.sampled_from(HOSTILE))
    else:
        del placement[key]
    return whole
