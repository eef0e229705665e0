"""The user's rules for buffers that a forward pass changes: how workers agree on them."""

from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Literal, get_args

from paceline.specs import PacelineError

BufferRule = Literal["average", "sum", "worker0"]
BufferRules = BufferRule | Mapping[str, BufferRule]
"""One rule for all buffers, or a rule for each pattern of their names."""

_RULES = get_args(BufferRule)


def rule_of(name: str, rules: BufferRules | None) -> BufferRule | None:
    """Return the rule of a buffer: that of the first pattern that matches its name."""
    if rules is None or isinstance(rules, str):
        return rules
    return next((rule for pattern, rule in rules.items() if fnmatchcase(name, pattern)), None)


def check_rules(rules: object) -> None:
    """Raise if this is not a rule, nor a mapping from patterns to rules."""
    given = rules.values() if isinstance(rules, Mapping) else [rules]
    for rule in given:
        if rule not in _RULES:
            raise PacelineError(
                f"Training(buffers=…) has the rule {rule!r}",
                fix=f"give {', '.join(map(repr, _RULES[:-1]))} or {_RULES[-1]!r}, for all buffers"
                ' or by name: buffers={"codebook.*": "average"}',
            )
