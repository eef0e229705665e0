"""Power of the devices while they train, where counters can be read."""

from collections import Counter

from paceline.conformance.check import Check, Outcome, not_applicable, passed
from paceline.conformance.session import Session
from paceline.report import RunReader


def _run(session: Session) -> Outcome:
    joules: Counter[str] = Counter()
    seconds = 0.0
    for use in (use for run in session.all_runs for use in RunReader(run).refresh().usage):
        if use.joules:
            seconds += use.seconds
            joules.update({name.partition("-")[0]: each for name, each in use.joules.items()})
    if not seconds:
        return not_applicable("not readable: neither NVML nor RAPL has counters for this user")
    watts = {name: round(each / seconds, 1) for name, each in joules.items()}
    words = ", ".join(f"{name} {each:.0f} W" for name, each in watts.items())
    return passed(f"{words} per node, mean over {seconds:.0f} s of runs", mean_watts=watts)


CHECK = Check(
    name="power",
    about="power of the devices while they train",
    run=_run,
    typical_seconds=1,
)
