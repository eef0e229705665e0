"""The replies of a subtree in one message: equal replies are sent once, with the members' ranks.

After a loss, nearly all members report the same state and cast the same vote, so the size of the
answer does not grow with their number. Facts about their trainings are compared one by one.
"""

import json
from collections.abc import Collection, Mapping
from typing import Any

from paceline.membership.compact.roster_book import RosterBook
from paceline.membership.messages import Answer, EqualFacts, EqualReplies, Facts, Left, Reply


def grouped(replies: Mapping[str, Reply], book: RosterBook, digest: str) -> Answer:
    """Return the answer with these replies by name, for a receiver that knows the roster."""
    names: dict[str, list[str]] = {}
    by_key: dict[str, Reply] = {}
    keys: dict[int, str] = {}  # many names share one reply, if it was received in one group
    for name, reply in replies.items():
        if id(reply) not in keys:
            bare = reply.model_copy(update={"facts": {}}) if isinstance(reply, Left) else reply
            keys[id(reply)] = bare.model_dump_json()
            by_key.setdefault(keys[id(reply)], bare)
        names.setdefault(keys[id(reply)], []).append(name)
    facts = {name: reply.facts for name, reply in replies.items() if isinstance(reply, Left)}
    return Answer(
        replies=tuple(
            EqualReplies(reply=by_key[key], who=book.who(some, digest))
            for key, some in names.items()
        ),
        facts=grouped_facts(facts, book, digest),
    )


def ungrouped(
    answer: Answer, book: RosterBook, digest: str, asked: Collection[str]
) -> dict[str, Reply]:
    """Return the replies by name; ignore those of members that were not asked."""
    found: dict[str, Reply] = {}
    facts = ungrouped_facts(answer.facts, book, digest)
    for each in answer.replies:
        shared: dict[tuple[tuple[str, int], ...], Reply] = {}
        for name in book.names(each.who, digest):
            if name not in asked or name in found:
                continue
            reply = each.reply
            if isinstance(reply, Left):
                own = facts.get(name, {})
                key = tuple((fact, id(value)) for fact, value in own.items())
                if key not in shared:
                    shared[key] = reply.model_copy(update={"facts": own})
                reply = shared[key]
            found[name] = reply
    return found


def grouped_facts(facts: Mapping[str, Mapping[str, Any]], book: RosterBook, digest: str) -> Facts:
    """Return facts by name as groups of members with equal values, for each fact.

    Lists of integers, such as the ranks that members once had, are compared less the member's own
    rank where that gives fewer groups.
    """
    by_fact: dict[str, dict[str, Any]] = {}
    for name, own in facts.items():
        for fact, value in own.items():
            by_fact.setdefault(fact, {})[name] = value
    written: dict[int, str] = {}
    ranks = book.ranks(digest)
    found: Facts = {}
    for fact, values in by_fact.items():
        groups = _equal(values, written)
        if len(groups) > 1 and all(_can_be_less(value) for value, _ in groups):
            less = {
                name: [each - ranks[name] for each in value]
                for name, value in values.items()
                if name in ranks
            }
            others = {name: value for name, value in values.items() if name not in ranks}
            fewer, rest = _equal(less, {}), _equal(others, {})
            if len(fewer) + len(rest) < len(groups):
                found[fact] = (
                    *(_fact(group, book, digest, less_rank=True) for group in fewer),
                    *(_fact(group, book, digest) for group in rest),
                )
                continue
        found[fact] = tuple(_fact(group, book, digest) for group in groups)
    return found


def ungrouped_facts(facts: Facts, book: RosterBook, digest: str) -> dict[str, dict[str, Any]]:
    """Return facts by name."""
    found: dict[str, dict[str, Any]] = {}
    ranks = book.ranks(digest)
    for fact, groups in facts.items():
        for each in groups:
            for name in book.names(each.who, digest):
                if not each.less_rank or name in ranks:
                    found.setdefault(name, {})[fact] = each.of(ranks.get(name, 0))
    return found


def _equal(values: Mapping[str, Any], written: dict[int, str]) -> list[tuple[Any, list[str]]]:
    """Return each value with the names that have it; `written` remembers a value's JSON."""
    groups: dict[str, tuple[Any, list[str]]] = {}
    for name, value in values.items():
        if id(value) not in written:
            written[id(value)] = json.dumps(value, sort_keys=True)
        groups.setdefault(written[id(value)], (value, []))[1].append(name)
    return list(groups.values())


def _can_be_less(value: object) -> bool:
    return isinstance(value, list | tuple) and all(type(each) is int for each in value)


def _fact(
    group: tuple[Any, list[str]], book: RosterBook, digest: str, *, less_rank: bool = False
) -> EqualFacts:
    value, names = group
    return EqualFacts(value=value, who=book.who(names, digest), less_rank=less_rank)
