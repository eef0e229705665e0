"""What a user asks of the cluster, in the words of Kubernetes."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from paceline.specs import Allocation, PacelineError

TITLE = "Kubernetes"
_SAID = ("qos", "constraint", "gres", "options")
"""Fields of an `Allocation` that Kubernetes has something for."""
_OPTIONS = (
    "--namespace=NAME",
    "--claim=NAME:/PATH",
    "--toleration=KEY[=VALUE][:EFFECT]",
    "--service-account=NAME",
    "--pull-secret=NAME",
    "--env-from=SECRET",
)
_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")


@dataclass(frozen=True)
class PodSettings:
    """Where a run's pods may be, and what they get there."""

    namespace: str | None = None
    priority_class: str | None = None
    selector: dict[str, str] = field(default_factory=dict)
    """Labels that the nodes must have."""
    resources: dict[str, int] = field(default_factory=dict)
    """Amounts per pod, such as `nvidia.com/gpu` and `cpu`."""
    tolerations: tuple[dict[str, str], ...] = ()
    claims: dict[str, str] = field(default_factory=dict)
    """Persistent volume claims by the path that pods see them at."""
    service_account: str | None = None
    pull_secrets: tuple[str, ...] = ()
    env_from: tuple[str, ...] = ()
    """Secrets of the namespace whose entries become variables."""

    @classmethod
    def of(cls, allocation: Allocation) -> "PodSettings":
        """Return the settings that options of `submit` describe; raise if there are none for
        one."""
        if unknown := [name for name in allocation.given if name not in _SAID]:
            raise PacelineError(
                f"{', '.join(f'--{name}' for name in unknown)} was given, but {TITLE} has no such"
                " thing",
                fix="leave it out; --partition names a queue of Kueue, --qos a priority class,"
                " --constraint labels of nodes, --gres resources of a pod",
            )
        given: dict[str, list[str]] = {}
        for option in allocation.options:
            name, equals, value = option.removeprefix("--").partition("=")
            if not equals or f"--{name}" not in (each.partition("=")[0] for each in _OPTIONS):
                raise PacelineError(
                    f"--scheduler-option {option} is not a setting of {TITLE}",
                    fix=f"use one of {', '.join(_OPTIONS)}",
                )
            given.setdefault(name, []).append(value)
        return cls(
            namespace=_last(given, "namespace"),
            priority_class=allocation.qos,
            selector=dict(_labels(allocation.constraint)),
            resources=dict(_amounts(allocation.gres)),
            tolerations=tuple(map(_toleration, given.get("toleration", ()))),
            claims=dict(map(_claim, given.get("claim", ()))),
            service_account=_last(given, "service-account"),
            pull_secrets=tuple(given.get("pull-secret", ())),
            env_from=tuple(given.get("env-from", ())),
        )

    @property
    def devices(self) -> int:
        """GPUs per pod."""
        return sum(amount for name, amount in self.resources.items() if "gpu" in name)


def _last(given: dict[str, list[str]], name: str) -> str | None:
    return given[name][-1] if name in given else None


def _labels(constraint: str | None) -> Iterator[tuple[str, str]]:
    for part in constraint.split("&") if constraint else ():
        name, equals, value = part.partition("=")
        if not equals or not name:
            raise PacelineError(
                f"--constraint {constraint} names no labels of nodes",
                fix="write --constraint 'LABEL=VALUE', and several as 'LABEL=VALUE&LABEL=VALUE'",
            )
        yield name, value


def _amounts(gres: str | None) -> Iterator[tuple[str, int]]:
    for part in gres.split(",") if gres else ():
        name, _, amount = part.rpartition(":")
        if not name or not amount.isdigit() or not int(amount):
            raise PacelineError(
                f"--gres {gres} names no resources of {TITLE}",
                fix="write --gres NAME:AMOUNT, such as nvidia.com/gpu:8,cpu:64; memory is --memory",
            )
        yield name, int(amount)


def _toleration(text: str) -> dict[str, str]:
    key, _, effect = text.partition(":")
    name, equals, value = key.partition("=")
    if not name or effect not in ("", *_EFFECTS):
        raise PacelineError(
            f"--toleration={text} is not KEY, KEY=VALUE or KEY=VALUE:EFFECT",
            fix=f"an EFFECT is one of {', '.join(_EFFECTS)}; without it, all are tolerated",
        )
    found = {"key": name, "operator": "Equal" if equals else "Exists"}
    return found | ({"value": value} if equals else {}) | ({"effect": effect} if effect else {})


def _claim(text: str) -> tuple[str, str]:
    name, _, path = text.partition(":")
    if not re.fullmatch(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?", name) or not path.startswith("/"):
        raise PacelineError(
            f"--claim={text} names no claim and folder",
            fix="write --claim=NAME:/PATH: a PersistentVolumeClaim of the namespace, and where"
            " this machine and the pods see it",
        )
    return str(PurePosixPath(path)), name
