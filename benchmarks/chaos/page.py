"""The results as the page `docs/survives.md`."""

from collections import Counter
from collections.abc import Iterable, Iterator

from benchmarks.chaos.kinds import KINDS
from benchmarks.chaos.results import Results, Row
from benchmarks.chaos.settings import SETTINGS, Setting

_WAYS = {
    "members": "the others go on with what they hold",
    "peers": "the state comes from copies in peers' memory",
    "checkpoint": "the state comes from the last checkpoint, in living processes",
    "restart": "the run is started again, from its last good checkpoint",
    "beginning": "from the beginning: there was no state yet",
    "went on": "training goes on",
}
_PROMISES = {
    "each sample once": "of the steps that count, all are there, each with all its parts, and no"
    " sample is in an epoch twice or missing; by the ledger's files",
    "members agree": "after every step, those who hold the same part of the weights hold the same"
    " bits, in modes that promise it; all end at the same step, in the same generation",
    "old generations are over": "nothing is saved or counted by a generation after a newer one has"
    " begun; by the order of events and the numbers of steps, not by clocks",
    "each fault as it should": "every fault is recovered from; half a second of silence and a clock"
    " that jumps raise no alarm; what must be told of is told of",
    "nothing is left": "no process, no listening port, no file in shared memory or the folder for"
    " temporary files",
    "nothing grows": "open files, threads and memory of a worker that lived through many"
    " generations",
    "learns the same": "the last weights are those of an undisturbed run on one worker but for"
    " rounding (0.1 % of their norm); where the number of workers is a part of the mode, the loss"
    " of its last steps is that of an undisturbed run, within a half",
    "the same bits": "the last weights are those of an undisturbed run on one worker to the bit;"
    " with `canonical` only",
}


def page(results: Results) -> str:
    """The page "What Paceline survives"."""
    blocks = (_summary, _faults, _settings, _times, _broken)
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
        f"| Promises checked | {sum(_promises(run.setting) for run in results.runs)}"
        f" ([{len(_PROMISES)} kinds](#what-is-promised), after every run);"
        f" **{len(_not_kept(results))} broken** |"
    )
    yield f"| Samples that counted | {samples:,}; {wrong} lost or counted twice |"
    yield f"| Measured | {' to '.join(dict.fromkeys((dates[0], dates[-1])))}, {results.machine} |"


def _promises(setting: str) -> int:
    return len(_PROMISES) - (not SETTINGS[setting].same_bits)


def _faults(results: Results) -> Iterator[str]:
    yield "## What happens"
    yield ""
    yield (
        "Seconds are from the fault to the first step of the generation after it; where nobody had"
        " to be left out, the longest time between two steps. All workers share one machine, so add"
        " what your network and the start of your processes take."
    )
    yield ""
    yield (
        "| Fault | What is done | What happens | Times | Seconds: p50 | p95 | Steps taken again:"
        " mean (most) | Samples lost |"
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
    yield "## In which trainings"
    yield ""
    yield "| Setting | What it is | Faults | Seeds | Promises broken |"
    yield "|---|---|--:|---|--:|"
    for name in _in_order(run.setting for run in results.runs):
        runs = [run for run in results.runs if run.setting == name]
        broken = sum(setting == name for setting, _, _ in _not_kept(results))
        seeds = ", ".join(str(run.seed) for run in runs)
        faults = sum(run.faults for run in runs)
        yield f"| {name} | {_described(SETTINGS[name])} | {faults} | {seeds} | {broken} |"


def _described(setting: Setting) -> str:
    layout = " × ".join(f"{number} {what}" for what, number in setting.layout.items())
    more = ",".join(f"{key}={value}" for key, value in setting.sync_more.items())
    return f"{layout}, `--sync {setting.sync}{':' + more if more else ''}`, {setting.optimizer}"


def _times(results: Results) -> Iterator[str]:
    settings = _in_order(run.setting for run in results.runs)
    times = Counter((each.kind, each.setting) for each in results.outcomes)
    yield "How often each fault was tried in each of them:"
    yield ""
    yield f"| Fault | {' | '.join(settings)} |"
    yield f"|---|{'--:|' * len(settings)}"
    for row in results.rows():
        yield f"| {row.kind} | {' | '.join(str(times[row.kind, name]) for name in settings)} |"


def _in_order(settings: Iterable[str]) -> list[str]:
    named = set(settings)
    return [name for name in SETTINGS if name in named]


def _broken(results: Results) -> Iterator[str]:
    yield "## What is promised"
    yield ""
    yield "| Promise | What it means | Broken |"
    yield "|---|---|--:|"
    not_kept = _not_kept(results)
    for rule, meaning in _PROMISES.items():
        yield f"| {rule} | {meaning} | {sum(each == rule for _, _, each in not_kept)} |"
    yield ""
    yield "Each is itself tried on doctored histories, in which it must find what is wrong."
    if not_kept:
        yield ""
    for (setting, seed, rule), messages in not_kept.items():
        times = f", and {len(messages) - 1} more" if len(messages) > 1 else ""
        yield f"- {rule} ({setting}, seed {seed}): {messages[0]}{times}"


def _not_kept(results: Results) -> dict[tuple[str, int, str], list[str]]:
    """The promises that a run broke: its setting and seed, the promise, and in what."""
    found: dict[tuple[str, int, str], list[str]] = {}
    for each in results.broken:
        found.setdefault((each.setting, each.seed, each.rule), []).append(each.message)
    return found


_BEFORE = """# What Paceline survives

Faults are put into real trainings on four workers, by a schedule that a seed decides. Then a
checker, which shares no code with what put them in, looks at what was left behind. This page is
made from what it found; [Fault tolerance](faults.md) says how it works, and what is known to be
missing."""

_AFTER = """## Try it

From a checkout; nothing outside of the runs is touched, and no rights are needed:

```bash
python -m benchmarks.chaos --settings ddp --faults 100 --seed 1
```

Which faults come, whom they meet and at which step is a function of the seed; `--print` shows it.
When a promise is broken, the command that does it all again is printed, and the folders of the runs
are kept.

A long campaign can be done in pieces, which make one page:

```bash
python -m benchmarks.chaos --settings fsdp --kinds kill,hang --faults 20 --seed 7 --json fsdp.json
python -m benchmarks.chaos --settings canonical --faults 40 --json canonical.json
python -m benchmarks.chaos --from fsdp.json canonical.json --write survives.md
```
"""
