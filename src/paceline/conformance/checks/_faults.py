"""A training in which a fault strikes one worker.

The others continue, and from then on the losses are those of an undisturbed training: every sample
counted once, and no step with partial sums.
"""

from collections.abc import Callable

from paceline.conformance.check import Outcome, failed, passed
from paceline.conformance.losses import difference
from paceline.conformance.session import FAULT_STEP, NO_RESTART, Session
from paceline.specs import Layout

LARGEST_DIFFERENCE = 2e-5


def struck(fault: str) -> Callable[[Session], Outcome]:
    """Return the check in which the last worker has this fault."""

    def run(session: Session) -> Outcome:
        state = session.trained(
            Layout(replicas=session.workers, bucket_megabytes=1),
            *("--fault", fault, "--at", str(FAULT_STEP)),
            faults=NO_RESTART,
        )
        # Before, the loss of a step that was not reported yet is lost with the worker's part of it.
        after = slice(FAULT_STEP - 1, None)
        found = difference(state.loss[after], session.losses_of_one[after])
        figures = {
            "largest_relative_difference": found,
            "regroups": len(state.regroups),
            "steps_again": sum(each.steps_again for each in state.regroups),
            "regroup_seconds": [each.seconds for each in state.regroups],
        }
        if not state.regroups:
            return failed("no regroup was recorded", **figures)
        if not found <= LARGEST_DIFFERENCE:
            return failed(f"losses differ by {found:.1e} from an undisturbed run", **figures)
        seconds = max(each.seconds for each in state.regroups)
        return passed(
            f"regrouped in {seconds:.2f} s, {figures['steps_again']} steps repeated, losses within"
            f" {found:.0e} of an undisturbed run's",
            **figures,
        )

    return run
