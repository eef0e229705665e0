"""Batch scripts from templates.

`job.sh.jinja` is the common part of all schedulers' scripts. A scheduler's own template extends it:
it sets `submit`, `launcher`, `restarts` and `node`, and fills the blocks `directives`, `start` and
`requeue`. For runs in an object store it also sets `job_id` and `each_node`, which starts a command
once on each node.
"""

import shlex
import zlib
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from paceline.schedulers.container_runtime import RUNTIMES, TaskContainer
from paceline.schedulers.scheduler import Scheduler
from paceline.specs import BATCH_ALIVE_SECONDS, STOPPED_EXIT_CODE, Faults, Job, PacelineError, Run
from paceline.specs.owned_files import private_umask

_LINE_LENGTH = 100


def render(template: Path, job: Job, run: Run, faults: Faults, scheduler: Scheduler) -> str:
    """Return the batch script that a scheduler's template makes for a run."""
    environment = Environment(
        loader=FileSystemLoader([template.parent, Path(__file__).parent]),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        finalize=_on_one_line,
        autoescape=False,  # noqa: S701 -- a shell script; every value is quoted for the shell
    )
    environment.filters["quoted"] = lambda value: shlex.quote(str(value))
    environment.filters["directive"] = _directive
    container, python = [], str(job.python)
    if job.container:
        assert job.container.runtime is not None
        runtime, python = RUNTIMES.get(job.container.runtime), job.container.python
        task = TaskContainer.of(job.container, job, run, scheduler.variables)
        container = [*_lines(runtime.launcher_options(task)), *_lines(runtime.command(task))]
    return environment.get_template(template.name).render(
        job=job,
        run=run,
        options=scheduler.options(job.allocation),
        script_file=run.path / scheduler.script_name,
        container=container,
        python=python,
        goes_on=faults.regroup and not job.probe,
        umask=f"{private_umask(share=job.share):03o}",
        alive_seconds=BATCH_ALIVE_SECONDS,
        stopped_code=STOPPED_EXIT_CODE,
        leader_port=job.port or port_of(run.name),
    )


def _lines(words: list[str]) -> list[str]:
    """Return words for the shell, as lines of at most about 100 characters."""
    lines: list[str] = []
    for word in map(shlex.quote, words):
        if lines and len(lines[-1]) + len(word) < _LINE_LENGTH:
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    return lines


def port_of(name: str) -> int:
    """Return a port below those that systems choose, likely another for another run."""
    return 20_000 + zlib.crc32(name.encode()) % 10_000


def _directive(option: str) -> str:
    """Return `--name=value` with its value quoted."""
    name, equals, value = option.partition("=")
    return name + equals + (shlex.quote(value) if equals else "")


def _on_one_line(value: object) -> object:
    """Refuse text with line breaks: in a comment, quoting does not keep it on one line."""
    if isinstance(value, str) and not value.isprintable():
        raise PacelineError(
            f"{value!r} would be part of the batch script, but has unprintable characters",
            fix="use names without line breaks for the run, its folder and its partition",
        )
    return value
