"""Time, bytes and samples to a loss over slow links: ways to synchronise, and what they beat.

A byte-level GPT learns from the source of the standard library, on nodes of a testbed (`paceline
testbed`) with real Slurm, real TCP and shaped links.

- Protocol A: 2 real ranks with a core each. Measured.
- Protocol B: 4 ranks (`--ranks 8`: 8) with real arithmetic and real exchanges, each step slept out
  to a fixed time, a third forward and two thirds backward, block by block: an emulated device. One
  rank alone has the whole batch, and would sleep ranks times as long: that time is counted, not
  slept.

The rate of the links is set so that DDP's communication (a ring's bytes over the rate, and the
delay of its rounds) takes `ratio` times as long as its computation; 0 leaves the links as fast as
the machine is. Where the delay alone would take most of that time there is none. One job runs all
candidates in turn, seed by seed. The clock stands still while losses are taken; what is then on its
way is waited for first. Bytes are those that the nodes' interfaces counted. The loss is that of
what the ranks have in common, on text that is held out.

`--tune FILE` gives each candidate the same number of trials with a seed that is not measured, and
keeps those with the least time to the loss. Without `--tuned FILE`, those of
`tuned.json` are taken, which also says how they were found; where a candidate has
none, its first trial with the usual rate is.

torchft's DiLoCo takes part where torchft can be imported: it is no dependency of Paceline. Into a
folder of its own, given with `--peers`:

    pip install --no-deps --target DIR torchft
    pip install --target DIR opentelemetry-sdk opentelemetry-exporter-otlp-proto-http
"""

import argparse
import importlib.util
import json
import math
import shlex
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from benchmarks.common.output import argument_parser
from benchmarks.sync.time_to_loss.candidates import CANDIDATES, TRIALS, Trial
from benchmarks.sync.time_to_loss.ranks import Options, started
from benchmarks.sync.time_to_loss.results import Result, Results
from benchmarks.sync.time_to_loss.shown import draw, show
from benchmarks.sync.time_to_loss.sizes import SIZES

TUNING_SEED = 1000
TUNED = Path(__file__).parent / "tuned.json"
"""What `--tune` chose, with the commands that did."""
FEW_RATIO = 1.0
"""Up to this ratio Paceline's own plain mean gradient takes part beside bare DDP."""


def candidates_at(ratio: float, options: Options) -> list[str]:
    """Those that take part, in their order."""
    if options.candidates:
        return list(options.candidates)
    lacking = set() if importlib.util.find_spec("torchft") else {"torchft DiLoCo"}
    lacking |= set() if ratio <= FEW_RATIO else {"allreduce"}
    return [name for name in CANDIDATES if name not in lacking]


def tuned_trial(name: str, ratio: float, options: Options) -> Trial:
    """From the file of tuned settings, that of this model, protocol and the nearest ratio."""
    having = [
        each for each in options.tuned if each["model"] == options.model and name in each["trials"]
    ]
    # Where this protocol has no settings of its own, those of the other one serve.
    own = [each for each in having if each["protocol"] == options.protocol] or having
    found = {each["ratio"]: each["trials"][name] for each in own}
    if not found:
        return next(trial for trial in CANDIDATES[name] if trial.rate == 1)
    nearest = min(found, key=lambda other: abs(math.log((other + 0.1) / (ratio + 0.1))))
    return Trial(**found[nearest])


def measure(options: Options) -> Results:
    """All candidates at all ratios, interleaved by seed; the unshaped link first."""
    results = Results()
    with started(options) as ranks:
        for ratio in sorted(options.ratios):
            setting = ranks.link(ratio)
            names = candidates_at(ratio, options)
            wanted = [
                (name, seed, tuned_trial(name, ratio, options), options.most_seconds)
                for seed in range(1, options.seeds + 1)
                for name in names
            ]
            found = ranks.run(wanted, f"ratio {ratio:g}, {setting.link}")
            results.settings.append(setting)
            results.results += [
                replace(each, protocol=options.protocol, ratio=ratio) for each in found
            ]
    return results


def tune(options: Options) -> list[dict[str, Any]]:
    """At each ratio, what was tried of each candidate and which trial reached the loss first."""
    tuned = []
    with started(options) as ranks:
        for ratio in sorted(options.ratios):
            link = ranks.link(ratio).link
            tried: dict[str, list[Result]] = {}
            for number in range(TRIALS):  # interleaved, as the measurement is
                for name in candidates_at(ratio, options):
                    trial, before = CANDIDATES[name][number], tried.setdefault(name, [])
                    # Who is slower than the best so far has lost, and need not go on.
                    best = min((each.seconds for each in before), default=math.inf)
                    cap = min(options.most_seconds, 1.1 * best)
                    words = f"ratio {ratio:g}, {name}: {trial.short()}"
                    before += ranks.run([(name, TUNING_SEED, trial, cap)], words)
            tuned.append(
                {
                    "command": shlex.join(["python", *sys.argv]),
                    "protocol": options.protocol,
                    "model": options.model,
                    "ratio": ratio,
                    "link": link,
                    "trials": {
                        name: asdict(min(found, key=lambda each: each.seconds).trial)
                        for name, found in tried.items()
                    },
                    "seconds": {
                        name: {
                            each.trial.short(): round(each.seconds, 2)
                            if math.isfinite(each.seconds)
                            else None
                            for each in found
                        }
                        for name, found in tried.items()
                    },
                }
            )
    return tuned


def _key(entry: dict[str, Any]) -> tuple[Any, ...]:
    return entry["protocol"], entry["model"], entry["ratio"]


def read_tuned(path: Path) -> list[dict[str, Any]]:
    """What was tuned before, if anything."""
    found: list[dict[str, Any]] = json.loads(path.read_text()) if path.exists() else []
    return found


def parsed() -> argparse.Namespace:
    """The command line."""
    parser = argument_parser(__doc__)
    parser.add_argument("--protocol", choices=("A", "B"), default="A")
    parser.add_argument("--ranks", type=int, help="2 with A, 4 with B")
    parser.add_argument("--ratios", type=float, nargs="+", default=[5.0], metavar="R")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--model", choices=tuple(SIZES), default="small")
    parser.add_argument("--target", type=float, help="loss to reach")
    parser.add_argument("--delay", default="5ms", help="of a link, each way")
    parser.add_argument("--step-seconds", type=float, default=0.05, help="with B")
    parser.add_argument("--most-seconds", type=float, default=60.0, help="for one run")
    parser.add_argument("--candidates", nargs="+", choices=tuple(CANDIDATES), metavar="NAME")
    parser.add_argument("--tune", type=Path, metavar="FILE", help="tune, and put it there")
    parser.add_argument("--tuned", type=Path, default=TUNED, metavar="FILE")
    parser.add_argument("--peers", type=Path, metavar="DIR", help="where torchft is")
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--svg", type=Path, metavar="FILE")
    parser.add_argument("--show", type=Path, nargs="+", metavar="FILE", help="earlier results only")
    parser.add_argument("--quick", action="store_true", help="two candidates, one seed, one link")
    return parser.parse_args()


def options_of(given: argparse.Namespace) -> Options:
    """What is to be measured."""
    quick = given.quick
    few = ("solo", "local int8 overlapped")
    return Options(
        protocol=given.protocol,
        ranks=given.ranks or {"A": 2, "B": 4}[given.protocol],
        ratios=tuple(given.ratios),
        seeds=1 if quick else given.seeds,
        model=given.model,
        target=given.target or (3.1 if quick else SIZES[given.model].target),
        delay=given.delay,
        step_seconds=given.step_seconds,
        most_seconds=10.0 if quick else given.most_seconds,
        candidates=tuple(given.candidates or (few if quick else ())),
        tuned=read_tuned(given.tuned),
        peers=given.peers,
    )


def main() -> None:
    """Tune, or measure and show."""
    given = parsed()
    sys.path[:0] = [str(given.peers)] if given.peers else []
    if given.tune:
        tuned = tune(options_of(given))
        keys = [_key(each) for each in tuned]
        kept = [each for each in read_tuned(given.tune) if _key(each) not in keys]
        given.tune.write_text(json.dumps(kept + tuned, indent=2) + "\n")
        return
    results = Results.read(given.show) if given.show else measure(options_of(given))
    if given.json:
        results.write(given.json)
    if given.svg:
        draw(results, given.svg)
    show(results)


if __name__ == "__main__":
    main()
