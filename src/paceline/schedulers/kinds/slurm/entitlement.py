"""A job held against the rights of its account and quality of service, before it is queued.

Slurm accepts a job above such a limit and lets it wait for ever.
"""

from collections.abc import Iterator

from paceline.schedulers.kinds.slurm.accounting import (
    Accounting,
    Association,
    JobLimits,
    group_limits,
)
from paceline.schedulers.kinds.slurm.controller import Controller, Partition
from paceline.schedulers.site import CommandFailed, Unreachable
from paceline.specs import Job, PacelineError

_STRONGER = frozenset({"--account", "-A", "--qos", "-q", "--nodes", "-N", "--time", "-t"})
"""Options of the user's own that replace what would be checked here."""
_NORMAL = "normal"
"""The QOS that Slurm itself creates, and gives jobs of associations without a default."""


def check_entitlement(
    job: Job, partition: Partition, accounting: Accounting, controller: Controller
) -> None:
    """Raise unless account and quality of service may run the job on the partition."""
    own = {option.partition("=")[0] for option in job.allocation.options}
    if "associations" not in accounting.enforced or own & _STRONGER:
        return
    right = _association(job, partition, accounting)
    quality = _quality(job, right)
    _check_quality(quality, right, partition, accounting)
    if "limits" in accounting.enforced or "safe" in accounting.enforced:
        _check_limits(job, quality, right, partition, accounting, controller)


def quality_flags(job: Job, accounting: Accounting) -> frozenset[str]:
    """Return the flags of the job's quality of service, which may lift limits of the partition."""
    account = job.allocation.account or accounting.default_account
    right = accounting.association(account or "", job.partition)
    found = accounting.qualities.get((_quality(job, right) if right else job.allocation.qos) or "")
    return found.flags if found else frozenset()


def _quality(job: Job, right: Association) -> str | None:
    """Return the quality of service that the job gets; None if Slurm's own default decides."""
    only = right.qualities[0] if len(right.qualities) == 1 else None
    return job.allocation.qos or right.default_quality or only


def _association(job: Job, partition: Partition, accounting: Accounting) -> Association:
    user, there = accounting.user, ", ".join(accounting.accounts)
    if not accounting.associations:
        raise PacelineError(
            f"the user {user} has no account on the cluster {accounting.cluster}",
            fix="ask the site's staff to add you to your project's account",
        )
    account = job.allocation.account or accounting.default_account
    if account is None:
        raise PacelineError(
            f"this cluster asks for an account, and the user {user} has no default one",
            fix=f"give --account, one of: {there}",
        )
    named = f"--account {account}" if job.allocation.account else f"the default account {account}"
    account = account.lower()  # as Slurm keeps them
    if account not in accounting.accounts:
        raise PacelineError(
            f"{named} is not an account of the user {user}",
            fix=f"use --account with one of: {there}",
        )
    right = accounting.association(account, partition.name)
    if right is None:
        of_account = (each for each in accounting.associations if each.account == account)
        where = ", ".join(sorted(each.partition or "" for each in of_account))
        raise PacelineError(
            f"{named} may not use the partition {partition.name}",
            fix=f"use --partition with one of: {where}",
        )
    if not partition.accounts.admits(account):
        others = [name for name in accounting.accounts if partition.accounts.admits(name)]
        raise PacelineError(
            f"the partition {partition.name} does not take jobs of the account {account}",
            fix=f"use --account with one of: {', '.join(others)}, or another --partition"
            if others
            else "use another --partition",
        )
    return right


def _check_quality(
    quality: str | None, right: Association, partition: Partition, accounting: Accounting
) -> None:
    if "qos" not in accounting.enforced:
        return
    usable = [name for name in right.qualities if partition.qualities.admits(name)]
    there = f"use --qos with one of: {', '.join(usable)}" if usable else "use another --partition"
    if quality is None:
        if _NORMAL in usable or partition.qualities.allowed is None:
            return
        raise PacelineError(
            f"the partition {partition.name} asks for a QOS, and the account {right.account} has"
            " no default one",
            fix=there,
        )
    if quality not in accounting.qualities:
        raise PacelineError(f"there is no QOS {quality} on this cluster", fix=there)
    if quality not in right.qualities:
        raise PacelineError(
            f"the account {right.account} may not use the QOS {quality}",
            fix=f"{there}, or another --account",
        )
    if not partition.qualities.admits(quality):
        raise PacelineError(
            f"the partition {partition.name} does not take jobs of the QOS {quality}", fix=there
        )


def _check_limits(
    job: Job,
    quality: str | None,
    right: Association,
    partition: Partition,
    accounting: Accounting,
    controller: Controller,
) -> None:
    nodes = job.nodes + job.spares
    asked = {"node": nodes, "gres/gpu": nodes * job.gpus_per_node}
    others = [name for name in right.qualities if name != quality]
    elsewhere = ", another --qos or --account" if others else ", or another --account"
    decided: set[str] = set()  # the first of them that limits a resource decides
    for source, limits in _sources(quality, right, partition, accounting, controller):
        if limits.minutes and "time" not in decided:
            decided.add("time")
            minutes = job.limits.minutes
            if minutes and minutes > limits.minutes:
                raise PacelineError(
                    f"--time asks for {minutes} minutes, but {source} allows {limits.minutes}",
                    fix=f"use --time {limits.minutes} at most{elsewhere}",
                )
        for name, wanted in asked.items():
            most = limits.resources.get(name)
            if most is None or name in decided:
                continue
            decided.add(name)
            if wanted > most:
                what = "nodes" if name == "node" else "GPUs"
                spares = f" and --spares {job.spares}" if job.spares else ""
                raise PacelineError(
                    f"--nodes {job.nodes}{spares} asks for {wanted} {what}, but {source} allows"
                    f" {most}",
                    fix=f"use {most} {what} at most{elsewhere}",
                )


def _sources(
    quality: str | None,
    right: Association,
    partition: Partition,
    accounting: Accounting,
    controller: Controller,
) -> Iterator[tuple[str, JobLimits]]:
    """Yield limits with their names, in Slurm's order of precedence."""
    qualities = {"the QOS": quality, f"the partition {partition.name}'s QOS": partition.qos}
    named = accounting.qualities.get(quality or "")
    if named is None or "OverPartQOS" not in named.flags:
        qualities = dict(reversed(qualities.items()))
    for words, name in qualities.items():
        if found := accounting.qualities.get(name or ""):
            yield f"{words} {found.name}", found.limits
    yield f"the account {right.account}", right.limits
    try:
        yield (
            f"the account {right.account}",
            group_limits(controller, right.account, accounting.cluster),
        )
    except (CommandFailed, Unreachable):
        return  # such as of accounts that are hidden from their users
