"""What is read from a run's folder, and what of it comes into a shell."""

import json
import stat
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import tomli_w
from hypothesis import given
from hypothesis import strategies as st

from file_modes import umask
from paceline.comm.signing import ForgedValue, sign
from paceline.membership.rendezvous.address_files import published_address
from paceline.schedulers.kinds.slurm import SCHEDULER
from paceline.specs import Allocation, Cluster, Faults, Job, PacelineError, Plan, Run
from paceline.specs.base import Spec
from ranks import new_run
from security.schemas import allowed, spoilt

SECRET = b"s" * 32


@pytest.mark.parametrize("mask", [0o022, 0o002, 0o000])
def test_the_secret_is_the_users_own(mask: int, tmp_path: Path) -> None:
    """Nobody else reads it, nor puts another in its place."""
    with umask(mask):
        run = new_run(tmp_path, workers=2)
    assert stat.S_IMODE(run.secret_file.stat().st_mode) == 0o600
    for folder in (run.path, run.events, run.logs, run.rendezvous):
        assert not stat.S_IMODE(folder.stat().st_mode) & 0o022


# What a shell would do with each of these, if it were not quoted, is `touch` a file.
INJECTIONS = (
    "$(touch FILE)",
    "`touch FILE`",
    "; touch FILE;",
    "' ; touch FILE ; '",
    '" ; touch FILE ; "',
    "main # && touch FILE",
    "main\ntouch FILE\n",
    "main'\ntouch FILE\n'",
    "main\r\ntouch FILE",
    "main\u2028touch FILE",
)


def _job(own: Path, **fields: Any) -> Job:
    return Job(
        **{
            "name": "gpt",
            "train": own / "train.py",
            "folder": own,
            "python": Path("/bin/true"),
            "partition": "main",
            "listeners": ("tensorboard",),
        }
        | fields
    )


FIELDS = ["name", "partition", "folder", "python", "listeners", "allocation"]


@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("words", INJECTIONS)
def test_nothing_in_a_job_runs_in_its_script(field: str, words: str, tmp_path: Path) -> None:
    words = words.replace("FILE", str(tmp_path / "ran"))
    value: Any = words
    if field == "listeners":
        value = (words,)
    elif field == "allocation":
        value = Allocation(account=words, options=(f"--comment={words}", f"-{words}"))
    job = _job(tmp_path, **{field: value})
    run = Run(tmp_path / "run")
    run.events.mkdir(parents=True)
    run.logs.mkdir()
    if words.isprintable():
        _runs_nothing(SCHEDULER.script(job, run, Faults()), tmp_path)
    else:
        with pytest.raises(PacelineError, match="unprintable characters"):
            SCHEDULER.script(job, run, Faults())


def test_the_name_of_a_run_stays_on_its_line(tmp_path: Path) -> None:
    with pytest.raises(PacelineError, match="unprintable characters"):
        SCHEDULER.script(_job(tmp_path), Run(tmp_path / f"a\ntouch {tmp_path / 'ran'}"), Faults())


def test_a_shell_would_run_it(tmp_path: Path) -> None:
    """The control: the same script, with the value as it is."""
    written = SCHEDULER.script(_job(tmp_path), Run(tmp_path / "run"), Faults())
    spoilt_script = written.replace("=main", f"=main\ntouch {tmp_path / 'ran'}")
    with pytest.raises(AssertionError, match="it ran"):
        _runs_nothing(spoilt_script, tmp_path)


def _runs_nothing(written: str, folder: Path) -> None:
    """Run a script with nothing but bash's own commands, and programs that do nothing."""
    programs = folder / "programs"
    programs.mkdir()
    for name in ("srun", "nice", "date", "rm", "scontrol", "sleep"):
        (programs / name).symlink_to("/bin/true")
    (programs / "touch").symlink_to("/usr/bin/touch")
    subprocess.run(
        ["/bin/bash", "-c", written],
        env={"PATH": str(programs)},
        cwd=folder,
        capture_output=True,
        check=False,
        timeout=20,
    )
    assert not (folder / "ran").exists(), "it ran"


SPECS: dict[type[Spec], Any] = {
    kind: spoilt(allowed(kind.model_json_schema())) for kind in (Plan, Job, Cluster)
}


def _without_nulls(value: Any) -> Any:
    """TOML has none."""
    if isinstance(value, dict):
        return {key: _without_nulls(each) for key, each in value.items() if each is not None}
    if isinstance(value, list):
        return [_without_nulls(each) for each in value if each is not None]
    return value


@given(data=st.data())
def test_any_toml_is_a_spec_or_a_mistake_that_is_told(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    kind = data.draw(st.sampled_from(list(SPECS)))
    value = data.draw(SPECS[kind])
    path = tmp_path_factory.getbasetemp() / "spec.toml"
    with suppress(UnicodeEncodeError):
        path.write_text(tomli_w.dumps(_without_nulls(value)))
    with suppress(PacelineError):
        kind.read(path)


@given(
    text=st.binary(max_size=200) | st.text("[]{}='\"\n.#0e-_:TZ\\xu", max_size=60).map(str.encode)
)
def test_any_bytes_are_toml_or_a_mistake_that_is_told(
    text: bytes, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.getbasetemp() / "bytes.toml"
    path.write_bytes(text)
    with suppress(PacelineError):
        Plan.read(path)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b"\xff\xfe", "is not valid TOML: 'utf-8' codec"),
        (b"a = " + b"[" * 100_000, "is not valid TOML: "),
        (b"nodes = " + b"9" * 5000, "is not valid TOML: Exceeds the limit"),
    ],
    ids=["no text", "deep", "many digits"],
)
def test_what_breaks_other_readers(text: bytes, said: str, tmp_path: Path) -> None:
    (tmp_path / "plan.toml").write_bytes(text)
    with pytest.raises(PacelineError, match=said):
        Plan.read(tmp_path / "plan.toml")


def test_a_folder_is_no_plan(tmp_path: Path) -> None:
    with pytest.raises(PacelineError, match="cannot be read: Is a directory"):
        Plan.read(tmp_path)


def _announcement(**fields: Any) -> bytes:
    where = json.dumps(["127.0.0.1", 4000])
    signature = sign(SECRET, "rendezvous/3/0", where.encode()).hex()
    return json.dumps({"where": where, "signature": signature} | fields).encode()


def test_what_worker_0_announced() -> None:
    assert published_address(_announcement(), 3, 0, SECRET) == ("127.0.0.1", 4000)
    for generation, node, secret in ((2, 0, SECRET), (3, 1, SECRET), (3, 0, b"another")):
        with pytest.raises(ForgedValue):
            published_address(_announcement(), generation, node, secret)


@given(
    text=st.binary(max_size=100)
    | spoilt(st.builds(lambda: json.loads(_announcement()))).map(
        lambda value: json.dumps(value).encode()
    )
)
def test_any_announcement_is_worker_0s_or_forged(text: bytes) -> None:
    try:
        assert published_address(text, 3, 0, SECRET) == ("127.0.0.1", 4000)
    except ForgedValue:
        return


def test_deep_announcements_are_forged() -> None:
    with pytest.raises(ForgedValue):
        published_address(b"[" * 100_000, 3, 0, SECRET)
