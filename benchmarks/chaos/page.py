"""The results as the page `docs/survives.md`."""

from collections import Counter
from collections.abc import Iterable, Iterator

from benchmarks.chaos.faults.kinds import KINDS
from benchmarks.chaos.results import Results, Row
from benchmarks.chaos.settings import SETTINGS, Setting

_WAYS = {
    "members": "survivors continue with their own state",
    "peers": "survivors restore peer copies",
    "checkpoint": "survivors restore the last checkpoint",
    "restart": "the run restarts from its last good checkpoint",
    "beginning": "the run starts over: it had saved no state",
    "went on": "training continues",
}
_INVARIANTS = {
    "each sample once": "every committed step is complete, and no sample is missing from an"
    " epoch or in it twice; checked with the ledger files",
    "replicas agree": "after every step, workers with the same part of the weights hold identical"
    " bits, in modes that guarantee it; all workers end at the same step, in the same generation",
    "no stale generation": "no generation saves or commits anything after a newer one has begun;"
    " checked by the order of events and step numbers, not by clocks",
    "expected recovery": "the run recovers from every fault; half a second of silence and a clock"
    " jump raise no alarm; faults that must be reported are reported",
    "no leftovers": "no process, no listening port, and no file in shared memory or the temporary"
    " folder is left behind",
    "no leaks": "the open files, threads and memory of a worker do not grow over many generations",
    "same result": "the final weights are those of an undisturbed run on one worker up to rounding"
    " (0.1 % of their norm); in modes that depend on the number of workers, the loss of the last"
    " steps is within 50 % of that of an undisturbed run",
    "bitwise identical": "the final weights are bitwise identical to those of an undisturbed run on"
    " one worker; only with `canonical`",
}


def page(results: Results) -> str:
    """Return the page "Fault injection results"."""
    blocks = (_summary, _faults, _settings, _times, _violations)
    return "\n\n".join([_BEFORE, *("\n".join(block(results)) for block in blocks), _AFTER])


def _summary(results: Results) -> Iterator[str]:
    settings = _in_order(run.setting for run in results.runs)
    dates = sorted({run.date for run in results.runs})
    minutes = sum(run.seconds for run in results.runs) / 60
    samples = sum(run.samples for run in results.runs)
    wrong = sum(run.wrong_samples for run in results.runs)
    yield "| | |"
    yield "|---|---|"
    yield (
        f"| Faults | {sum(run.faults for run in results.runs):,} in {len(results.runs)} runs,"
        f" {minutes:.0f} minutes |"
    )
    yield f"| Settings | {', '.join(settings)} |"
    yield (
        f"| Invariants checked | {sum(_invariants(run.setting) for run in results.runs)}"
        f" ([{len(_INVARIANTS)} kinds](#invariants), after every run);"
        f" **{len(_violated(results))} violated** |"
    )
    yield f"| Samples trained | {samples:,}; {wrong} lost or duplicated |"
    yield f"| Measured | {' to '.join(dict.fromkeys((dates[0], dates[-1])))}, {results.machine} |"


def _invariants(setting: str) -> int:
    return len(_INVARIANTS) - (not SETTINGS[setting].same_bits)


def _faults(results: Results) -> Iterator[str]:
    yield "## Results by fault"
    yield ""
    yield (
        "Seconds are measured from the fault to the first step of the next generation. If no worker"
        " was left out, they are the longest time between two steps. All workers share one machine:"
        " on a cluster, network latency and the start of processes come on top."
    )
    yield ""
    yield (
        "| Fault | Injected by | Recovery | Count | Seconds: p50 | p95 | Steps repeated:"
        " mean (max) | Samples lost |"
    )
    yield "|---|---|---|--:|--:|--:|--:|--:|"
    for row in results.rows():
        kind = KINDS[row.kind]
        yield (
            f"| {kind.title} (`{row.kind}`) | {kind.made} | {_ways(row)} | {row.times}"
            f" | {row.p50_seconds:.2f} | {row.p95_seconds:.2f}"
            f" | {row.mean_steps_again:.1f} ({row.max_steps_again}) | {row.wrong_samples} |"
        )


def _ways(row: Row) -> str:
    several = len(row.ways) > 1
    return "; ".join(
        _WAYS.get(way, way) + (f" ({times}×)" if several else "") for way, times in row.ways.items()
    )


def _settings(results: Results) -> Iterator[str]:
    yield "## Results by setting"
    yield ""
    yield "| Setting | Layout, mode, optimizer | Faults | Seeds | Invariants violated |"
    yield "|---|---|--:|---|--:|"
    for name in _in_order(run.setting for run in results.runs):
        runs = [run for run in results.runs if run.setting == name]
        violated = sum(setting == name for setting, _, _ in _violated(results))
        seeds = ", ".join(str(run.seed) for run in runs)
        faults = sum(run.faults for run in runs)
        yield f"| {name} | {_described(SETTINGS[name])} | {faults} | {seeds} | {violated} |"


def _described(setting: Setting) -> str:
    layout = " × ".join(f"{number} {what}" for what, number in setting.layout.items())
    more = ",".join(f"{key}={value}" for key, value in setting.sync_more.items())
    return f"{layout}, `--sync {setting.sync}{':' + more if more else ''}`, {setting.optimizer}"


def _times(results: Results) -> Iterator[str]:
    settings = _in_order(run.setting for run in results.runs)
    times = Counter((each.kind, each.setting) for each in results.outcomes)
    yield "Number of faults of each kind in each setting:"
    yield ""
    yield f"| Fault | {' | '.join(settings)} |"
    yield f"|---|{'--:|' * len(settings)}"
    for row in results.rows():
        yield f"| {row.kind} | {' | '.join(str(times[row.kind, name]) for name in settings)} |"


def _in_order(settings: Iterable[str]) -> list[str]:
    named = set(settings)
    return [name for name in SETTINGS if name in named]


def _violations(results: Results) -> Iterator[str]:
    yield "## Invariants"
    yield ""
    yield "| Invariant | Meaning | Violated |"
    yield "|---|---|--:|"
    violated = _violated(results)
    for rule, meaning in _INVARIANTS.items():
        yield f"| {rule} | {meaning} | {sum(each == rule for _, _, each in violated)} |"
    yield ""
    yield "The tests check that each of these checks finds a violation in falsified run records."
    if violated:
        yield ""
    for (setting, seed, rule), messages in violated.items():
        times = f", and {len(messages) - 1} more" if len(messages) > 1 else ""
        yield f"- {rule} ({setting}, seed {seed}): {messages[0]}{times}"


def _violated(results: Results) -> dict[tuple[str, int, str], list[str]]:
    """Return the messages of all violations by setting, seed and invariant."""
    found: dict[tuple[str, int, str], list[str]] = {}
    for each in results.broken:
        found.setdefault((each.setting, each.seed, each.rule), []).append(each.message)
    return found


_BEFORE = """# Fault injection results

The chaos benchmark injects faults into real trainings on four workers, following a seeded schedule.
A checker that shares no code with the injector then verifies what the runs left behind.
[Fault tolerance](faults.md) explains the mechanism and its known limits."""

_AFTER = """## Run it yourself

Run this from a checkout. It needs no privileges and touches nothing outside of its runs:

```bash
python -m benchmarks.chaos --settings ddp --faults 100 --seed 1
```

The seed determines the faults, the workers they hit and the steps; `--print` shows this schedule.
If an invariant is violated, the benchmark prints the command that repeats the run and keeps the run
folders.

You can split a long campaign and combine the parts into one page:

```bash
python -m benchmarks.chaos --settings fsdp --kinds kill,hang --faults 20 --seed 7 --json fsdp.json
python -m benchmarks.chaos --settings canonical --faults 40 --json canonical.json
python -m benchmarks.chaos --from fsdp.json canonical.json --write survives.md
```
"""
