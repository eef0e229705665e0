"""What a user can choose from at a site with Slurm."""

from paceline.schedulers.kinds.slurm.accounting import Accounting
from paceline.schedulers.kinds.slurm.controller import Controller
from paceline.schedulers.scheduler import SiteChoice


def choices(controller: Controller) -> list[SiteChoice]:
    """Return the options that have values here, with the site's default where it has one."""
    accounting, nodes = Accounting.read(controller), controller.nodes()
    partitions = controller.partitions()
    usual = next((each.name for each in partitions if each.default), None)
    qualities = {name for each in accounting.associations for name in each.qualities}
    found = [
        SiteChoice(
            "account",
            tuple(accounting.accounts),
            accounting.default_account,
            needed="associations" in accounting.enforced,
        ),
        SiteChoice("partition", tuple(each.name for each in partitions), usual, needed=True),
        SiteChoice("qos", tuple(sorted(qualities)), _only_default(accounting)),
        SiteChoice("constraint", tuple(sorted({name for node in nodes for name in node.features}))),
        SiteChoice("gres", tuple(sorted({name for node in nodes for name in node.gres}))),
    ]
    return [choice for choice in found if choice.names]


def _only_default(accounting: Accounting) -> str | None:
    """Return the default QOS if it is the same for all of the user's accounts."""
    found = {each.default_quality for each in accounting.associations}
    return found.pop() if len(found) == 1 else None
