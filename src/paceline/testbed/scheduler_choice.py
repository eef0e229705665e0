"""The choice of a scheduler: the requested one, this machine's, or a testbed's."""

from collections.abc import Callable

from paceline.schedulers.scheduler import SCHEDULERS, Scheduler
from paceline.schedulers.site import Unreachable
from paceline.specs.errors import PacelineError
from paceline.testbed import client


def choose_scheduler(
    name: str | None, testbed: str | None, say: Callable[[str], None], *, dry_run: bool = False
) -> Scheduler:
    """Return the scheduler to submit to; raise `Unreachable` where none answers.

    `name`: `--scheduler`; by default the only one that answers on this machine, else that of the
    testbed `default` or of the only testbed. `testbed`: `--testbed`. `say` reports a default that
    the user may not expect. `dry_run`: the scheduler named need not answer.
    """
    if testbed is not None:
        if name not in (None, client.SCHEDULER):
            raise PacelineError(
                f"--scheduler {name} was given, but the testbed {testbed} runs {client.SCHEDULER}",
                fix="leave out --scheduler or --testbed",
            )
        return client.scheduler(testbed)
    found, problems = _answering(
        [each for each in SCHEDULERS if not each.only_by_name]
        if name is None
        else [SCHEDULERS.get(name)]
    )
    if len(found) == 1:
        return found[0]
    if found:
        raise PacelineError(
            f"{len(found)} schedulers answer on this machine:"
            f" {', '.join(each.name for each in found)}",
            fix="choose one with --scheduler",
        )
    testbeds = client.running() if name in (None, client.SCHEDULER) else []
    if not testbeds and name is not None and dry_run:
        return SCHEDULERS.get(name)
    if not testbeds:
        raise Unreachable(
            "; ".join(each.problem for each in problems), fix=problems[0].fix
        ) from problems[0]
    if len(testbeds) > 1 and "default" not in testbeds:
        raise PacelineError(
            f"no scheduler answers on this machine, and {len(testbeds)} testbeds are up",
            fix=f"choose one with --testbed: {', '.join(testbeds)}",
        )
    chosen = "default" if "default" in testbeds else testbeds[0]
    say(f"using the testbed {chosen}: no scheduler answers on this machine")
    return client.scheduler(chosen)


def _answering(schedulers: list[Scheduler]) -> tuple[list[Scheduler], list[PacelineError]]:
    """Return the schedulers that answer, and the problems of the others."""
    found, problems = [], []
    for scheduler in schedulers:
        try:
            scheduler.ping()
        except PacelineError as problem:
            problems.append(problem)
        else:
            found.append(scheduler)
    return found, problems
