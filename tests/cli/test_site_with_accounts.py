"""A site with accounts and QOS: what its users meet, on Slurm's own accounting."""

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from paceline import testbed
from paceline.jobs.site_draft import draft_site
from paceline.specs import Allocation, Job, Limits, PacelineError

pytestmark = [pytest.mark.slurm(accounting=True), pytest.mark.timeout(600)]

NAME = "site"
PAGE = Path(__file__).parents[2] / "docs/accounts.md"


@pytest.fixture
def down_afterwards() -> Iterator[None]:
    if NAME in testbed.running():
        testbed.down(NAME)  # from a session that was killed
    yield
    with suppress(PacelineError):
        testbed.down(NAME)


def _job(nodes: int = 1, minutes: int | None = None, **asked: str) -> Job:
    return Job(
        name="a",
        folder=Path("/"),
        python=Path(sys.executable),
        nodes=nodes,
        limits=Limits(minutes=minutes),
        allocation=Allocation(**asked),
    )


@pytest.mark.usefixtures("down_afterwards")
def test_refusals_by_what_slurms_accounting_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before, Slurm named nothing that is allowed, and accepted jobs that never start."""
    testbed.up(testbed.TestbedSpec(name=NAME, nodes=4, accounting=True))
    slurm = testbed.scheduler(NAME)
    draft = draft_site(slurm)
    assert 'account = "physics"' in draft.text
    assert "# account: biology, physics" in draft.text
    assert 'partition = "main"' in draft.text
    assert "# qos: " in draft.text
    for job, said in [
        (_job(account="chemistry"), "one of: biology, physics"),
        (_job(qos="gold"), "no QOS gold(.|\n)*one of: debug, normal"),
        (_job(account="biology", qos="debug"), "biology may not use(.|\n)*one of: scavenge"),
        (_job(3, qos="debug"), "3 nodes, but the QOS debug allows 2"),
        (_job(4), "4 nodes, but the account physics allows 3"),
        (_job(3, account="biology"), "3 nodes, but the account biology allows 2"),
        (_job(minutes=120, account="biology"), "120 minutes, but the account biology allows 60"),
    ]:
        with pytest.raises(PacelineError, match=said):
            slurm.fit(job, None)
    fitted, warnings = slurm.fit(_job(2, 10, qos="debug", gres="fpga:2", constraint="odd"), None)
    assert (fitted.partition, warnings) == ("main", [])
    slurm.site.call("sbatch", "--wrap=true", "--output=/dev/null", title=slurm.title)
    ends = time.monotonic() + 60
    while not (waits := slurm.past_waits("main", "physics")) and time.monotonic() < ends:
        time.sleep(0.2)
    assert [each.nodes for each in waits] == [1]
    assert slurm.past_waits("main", "biology") == []
    # Slurm's own variables, which would be stronger than the script's lines
    monkeypatch.setenv("SBATCH_ACCOUNT", "biology")
    monkeypatch.setenv("SBATCH_TIMELIMIT", "120")
    with pytest.raises(PacelineError, match="120 minutes, but the account biology allows 60"):
        slurm.fit(_job(), None)
    fitted, _ = slurm.fit(_job(minutes=30), None)
    assert (fitted.allocation.account, fitted.limits.minutes) == ("biology", 30)
    assert (
        slurm.fit(_job(2, account="physics", minutes=30), None)[0].allocation.account == "physics"
    )


@pytest.mark.nightly
@pytest.mark.usefixtures("down_afterwards")
def test_the_page_says_what_the_commands_print(shared_folder: Path) -> None:
    text = PAGE.read_text()
    train = re.search(r"<!-- file: train.py -->\n```python\n(.*?)```", text, re.DOTALL)
    assert train
    (shared_folder / "train.py").write_text(train[1])
    for command, printed in _transcript(text):
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=shared_folder,
            env=os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=200,
            check=False,
        )
        print(f"$ {command}\n{done.stdout}")
        assert done.returncode == (2 if printed[:1] and printed[0].startswith("error:") else 0)
        for line in printed:
            pattern = ".*".join(re.escape(part) for part in line.split("…"))
            assert re.search(f"^{pattern} *$", done.stdout, re.MULTILINE), line


def _transcript(text: str) -> Iterator[tuple[str, list[str]]]:
    """Yield each command of the page with the lines that it must print."""
    for block in re.findall(r"```console\n(.*?)```", text, re.DOTALL):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, *printed = part.rstrip("\n").splitlines()
            yield command, printed
