"""A copy of the user's code in the run folder, which the run's workers import.

So a job that waits in the queue, is requeued or resumed runs the code that was submitted. Code is
copied; beside it lie links to everything else, so that paths relative to `__file__` still lead to
the user's data.
"""

import json
import time
from collections.abc import Iterable
from importlib import metadata
from os.path import relpath
from pathlib import Path
from urllib.parse import unquote, urlsplit

from paceline.jobs.code_files import CODE, SECRET_WORDS, SETTINGS, CodeFiles, find_code
from paceline.observe.versions import git
from paceline.specs import CodeSnapshot, Job, PacelineError, Run
from paceline.specs.owned_files import make_folder, open_owned, write_owned

_MOST_LINKS = 4000
_MOST_DIFF_BYTES = 1 << 20
_MOST_NAMED = 5


def with_snapshot(run: Run, job: Job) -> Job:
    """Copy the code of a job's training into its run folder; return the job that runs the copy."""
    if job.train is None:
        return job
    found = find_code(job.train)
    top = _top(job.train.parent)
    try:
        make_folder(run.code, exist_ok=True)
        folder = run.code / str(len(list(run.code.glob("*.toml"))))
        _build(folder, top, job.train.parent, found, run.path.parent)
        if diff := _diff(job.train.parent):
            write_owned(folder.with_suffix(".diff"), diff)
        snapshot = _record(run, folder / job.train.relative_to(top), job.train, found, diff)
        if job.container:  # the packages are the image's
            snapshot = snapshot.model_copy(update={"editable": ()})
        write_owned(folder.with_suffix(".toml"), snapshot.to_toml())
    except OSError as error:
        raise PacelineError(
            f"the code of {job.train.name} cannot be copied into {run.path}: {error.strerror}",
            fix="make room there, or give another parent with --runs DIR",
        ) from None
    return job.model_copy(update={"code": snapshot.file})


def what_stays_live(run: Run, job: Job) -> str | None:
    """Return a line about code that a later edit still changes; None if there is none known."""
    if job.code is None:
        return None
    snapshot = CodeSnapshot.read(run.code / f"{job.code.parts[1]}.toml", own=run.own)
    names = [*snapshot.editable, *snapshot.left_out]
    if not names:
        return None
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return (
        f"the job runs a copy of your code; not copied, so do not edit until it has started:"
        f" {', '.join(names[:_MOST_NAMED])}{more}"
    )


def has_changed(run: Run, job: Job) -> bool:
    """Return whether the user's code differs from the run's snapshot."""
    if job.code is None or job.train is None or not job.train.exists():
        return False
    copies = (run.path / job.code).parent
    for name, contents in find_code(job.train).files.items():
        copy = copies / name
        if copy.is_symlink() or not copy.is_file() or copy.read_bytes() != contents:
            return True
    return False


def _build(folder: Path, top: Path, source: Path, found: CodeFiles, runs: Path) -> None:
    """Write the copies, and links to what lies beside them up to the top of the repository.

    Links to what is in the folder of the runs are relative, so that it can be moved."""
    copied = {source / name: contents for name, contents in found.files.items()}
    folders = {parent for path in copied for parent in path.parents if parent.is_relative_to(top)}
    links = 0
    for each in sorted(folders | {source, top}):
        make_folder(folder / each.relative_to(top))
        for entry in _listed(each):
            # Bytecode of the user's folder would be taken for that of the copies.
            if entry in copied or entry in folders or entry.name == "__pycache__":
                continue
            if entry.name.startswith(".") and not entry.is_relative_to(source):
                continue
            if folder.is_relative_to(entry):  # programs that follow links would go in circles
                continue
            links += 1
            if links > _MOST_LINKS:
                break
            link = folder / entry.relative_to(top)
            moves_along = entry.is_relative_to(runs)
            link.symlink_to(relpath(entry, link.parent) if moves_along else entry)
    for path, contents in copied.items():
        with open_owned(folder / path.relative_to(top), "xb") as file:
            file.write(contents)


def _top(source: Path) -> Path:
    """Return the top of the repository, or at least the folder above the training's."""
    answer = git(source, "rev-parse", "--show-toplevel")
    top = Path(answer) if answer else source
    # git resolves links in the path.
    return top if answer and source.parent.is_relative_to(top) else source.parent


def _listed(folder: Path) -> Iterable[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError:  # a folder above the user's own may be closed
        return []


def _record(run: Run, copy: Path, train: Path, found: CodeFiles, diff: str) -> CodeSnapshot:
    return CodeSnapshot(
        train=train,
        file=copy.relative_to(run.path),
        taken=time.strftime("%Y-%m-%d %H:%M:%S %z"),
        files=len(found.files),
        total_bytes=found.total_bytes,
        commit=git(train.parent, "rev-parse", "HEAD") or None,
        changed=bool(diff),
        left_out=tuple(found.left_out),
        editable=tuple(_editable_outside(train.parent)),
    )


def _diff(folder: Path) -> str:
    """Return how the code of the whole repository differs from its commit."""
    wanted = [f":(top,glob)**/*{suffix}" for suffix in sorted(CODE | SETTINGS)]
    secret = [
        f":(top,glob,icase,exclude)**/*{word}*{suffix}"
        for word in SECRET_WORDS
        for suffix in sorted(SETTINGS)
    ]
    words = ("diff", "--no-ext-diff", "--no-textconv", "HEAD", "--")
    diff = git(folder, *words, *wanted, *secret) or ""
    if len(diff) <= _MOST_DIFF_BYTES:
        return diff + "\n" * bool(diff)
    return diff[:_MOST_DIFF_BYTES] + "\n(cut here)\n"


def _editable_outside(folder: Path) -> Iterable[str]:
    """Return the editable-installed packages whose source is not in the training's folder."""
    for package in metadata.distributions():
        text = package.read_text("direct_url.json")
        if not text:
            continue
        try:
            origin = json.loads(text)
        except ValueError:
            continue
        if not origin.get("dir_info", {}).get("editable"):
            continue
        source = Path(unquote(urlsplit(origin["url"]).path))
        if not source.is_relative_to(folder):
            yield f"{package.name} (editable, from {source})"
