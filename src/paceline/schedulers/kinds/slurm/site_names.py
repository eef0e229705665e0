"""Names that a job uses of a site: features, generic resources, licenses and reservations."""

import re
from collections.abc import Iterable

from paceline.schedulers.kinds.slurm.controller import Controller, Node
from paceline.specs import Allocation, PacelineError

_COUNT = re.compile(r"\d+[KMGTP]?", re.IGNORECASE)


def check_names(allocation: Allocation, nodes: list[Node], controller: Controller) -> None:
    """Raise if a name does not exist; `nodes`: those of the job's partition."""
    if allocation.constraint:
        there = {feature for node in nodes for feature in node.features}
        _check("constraint", "feature", _features(allocation.constraint), there)
    if allocation.gres:
        there = {kind for node in nodes for each in node.gres for kind in _kinds(each)}
        shown = {each for node in nodes for each in node.gres}
        asked = [_kinds(each)[-1] for each in allocation.gres.split(",")]
        _check("gres", "generic resource", asked, there, shown)
    if allocation.licenses:
        there = {row.get("LicenseName", "") for row in controller.rows("licenses")}
        asked = [re.split("[:=]", each)[0] for each in re.split("[,;|]", allocation.licenses)]
        _check("licenses", "license", asked, there)
    if allocation.reservation:
        there = {row.get("ReservationName", "") for row in controller.rows("reservation")}
        _check("reservation", "reservation", allocation.reservation.split(","), there)


def _features(constraint: str) -> list[str]:
    """Return the features of an expression such as `[rack1*2&rack2*4]` or `a100&(ib|roce)`."""
    words = re.split(r"[&|,()\[\]\s]+", constraint)
    return [word.split("*")[0] for word in words if word]


def _kinds(gres: str) -> list[str]:
    """Return the names for `gpu:a100:4`: `gpu` and `gpu:a100`."""
    name, *rest = gres.removeprefix("gres/").replace("=", ":").split(":")
    kind = next((part for part in rest if part and not _COUNT.fullmatch(part)), None)
    return [name] if kind is None else [name, f"{name}:{kind}"]


def _check(
    option: str,
    what: str,
    asked: Iterable[str],
    there: set[str],
    shown: set[str] | None = None,
) -> None:
    for name in asked:
        if name not in there:
            listed = ", ".join(sorted(shown if shown is not None else there))
            raise PacelineError(
                f"--{option} names {name}, but there is no such {what} here",
                fix=f"use --{option} with: {listed}"
                if listed
                else f"leave out --{option}: there is no {what} here",
            )
