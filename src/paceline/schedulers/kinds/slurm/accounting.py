"""Accounts, qualities of service and their limits, as Slurm's accounting records them."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from paceline.schedulers.kinds.slurm.controller import Controller
from paceline.schedulers.quantities import minutes_of
from paceline.schedulers.site import CommandFailed, Unreachable

_ACCOUNTING = "accounting_storage/slurmdbd"


@dataclass(frozen=True)
class JobLimits:
    """Limits that no single job can exceed and ever start."""

    minutes: int | None = None
    resources: Mapping[str, int] = field(default_factory=dict)
    """By Slurm's name of the resource: `node`, `gres/gpu`."""


@dataclass(frozen=True)
class Quality:
    """A quality of service."""

    name: str
    limits: JobLimits
    flags: frozenset[str]


@dataclass(frozen=True)
class Association:
    """A user's right to an account, on one partition or all."""

    account: str
    partition: str | None
    qualities: tuple[str, ...]
    default_quality: str | None
    limits: JobLimits


@dataclass(frozen=True)
class Accounting:
    """What one user may ask of the cluster; a site without accounting enforces nothing."""

    user: str = ""
    cluster: str = ""
    enforced: frozenset[str] = frozenset()
    """What Slurm refuses or holds back: `associations`, `qos`, `limits`."""
    default_account: str | None = None
    associations: tuple[Association, ...] = ()
    qualities: Mapping[str, Quality] = field(default_factory=dict)

    @classmethod
    def read(cls, controller: Controller) -> "Accounting":
        """Ask the cluster; return an empty accounting where there is none, or it is silent."""
        settings = controller.settings()
        if settings.get("AccountingStorageType") != _ACCOUNTING:
            return cls()
        enforced = frozenset(settings.get("AccountingStorageEnforce", "").lower().split(","))
        cluster, user = settings.get("ClusterName", ""), controller.user()
        try:
            qualities = _shown(controller, "qos", ("Name", "MaxWall", "Flags", *_RESOURCES))
            rights = _shown(
                controller,
                "assoc",
                ("Account", "Partition", "QOS", "DefaultQOS", "MaxWall", *_RIGHTS_RESOURCES),
                f"user={user}",
                f"cluster={cluster}",
            )
            defaults = _shown(controller, "user", ("User", "DefaultAccount"), f"name={user}")
        except (CommandFailed, Unreachable):  # slurmdbd is away; Slurm goes on without it
            return cls()
        return cls(
            user=user,
            cluster=cluster,
            enforced=enforced,
            default_account=next((row["DefaultAccount"] or None for row in defaults), None),
            associations=tuple(_association(row) for row in rights),
            qualities={row["Name"]: _quality(row) for row in qualities},
        )

    @property
    def accounts(self) -> list[str]:
        """The user's accounts."""
        return sorted({each.account for each in self.associations})

    def association(self, account: str, partition: str | None) -> Association | None:
        """Return the user's right to an account on a partition."""
        of_account = [each for each in self.associations if each.account == account]
        for wanted in (partition, None):
            for each in of_account:
                if each.partition == wanted:
                    return each
        return None


def group_limits(controller: Controller, account: str, cluster: str) -> JobLimits:
    """Return the limits of all jobs of an account together, which one job can't exceed either."""
    where = ("user=", f"account={account}", f"cluster={cluster}")
    rows = _shown(controller, "assoc", ("GrpTRES",), *where)
    return JobLimits(resources=_resources(*(row["GrpTRES"] for row in rows)))


_RESOURCES = ("MaxTRES", "MaxTRESPU", "MaxTRESPA", "GrpTRES")
_RIGHTS_RESOURCES = ("MaxTRES", "GrpTRES")


def _shown(
    controller: Controller, kind: str, columns: tuple[str, ...], *where: str
) -> list[dict[str, str]]:
    """Return the rows of `sacctmgr show`."""
    condition = ("where", *where) if where else ()
    output = controller.call(
        *("sacctmgr", "--noheader", "--parsable2", "show", kind, *condition),
        f"format={','.join(columns)}",
    )
    return [dict(zip(columns, line.split("|"), strict=True)) for line in output.splitlines()]


def _quality(row: Mapping[str, str]) -> Quality:
    return Quality(
        name=row["Name"],
        limits=JobLimits(_minutes(row), _resources(*(row[column] for column in _RESOURCES))),
        flags=frozenset(row["Flags"].split(",")),
    )


def _association(row: Mapping[str, str]) -> Association:
    return Association(
        account=row["Account"],
        partition=row["Partition"] or None,
        qualities=tuple(name.lstrip("+") for name in row["QOS"].split(",") if name),
        default_quality=row["DefaultQOS"] or None,
        limits=JobLimits(_minutes(row), _resources(*(row[name] for name in _RIGHTS_RESOURCES))),
    )


def _minutes(row: Mapping[str, str]) -> int | None:
    return minutes_of(row["MaxWall"]) if row["MaxWall"] else None


def _resources(*texts: str) -> dict[str, int]:
    """Return the least of each resource in lists such as `node=2,gres/gpu=8`."""
    found: dict[str, int] = {}
    for text in texts:
        for name, _, number in (each.partition("=") for each in text.split(",")):
            if number.isdigit():
                found[name] = min(int(number), found.get(name, int(number)))
    return found
