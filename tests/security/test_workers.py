"""Real workers, looked at from inside while they train: what they listen on, unpickle and show."""

import json
from pathlib import Path

import pytest

from command import SMALL, paceline, write_training
from paceline.report import render
from paceline.specs import Run

SPY = """
import json, os, pickle, sys
import psutil

unpickled = []

def heed(event, arguments):
    if event == "pickle.find_class":
        unpickled.append(".".join(map(str, arguments)))

sys.addaudithook(heed)
calls = 0

def loss(output, target):
    global calls
    calls += 1
    if calls == 10:
        pickle.loads(pickle.dumps(OSError))  # so that it is seen whether the hook hears anything
        note()
    return F.cross_entropy(output, target)

def note():
    me = psutil.Process()
    found = {
        "listening": [
            each.laddr.ip
            for process in (me, *me.children(recursive=True))
            for each in process.net_connections("inet")
            if each.status in (psutil.CONN_LISTEN, psutil.CONN_NONE)
        ],
        "unpickled": unpickled,
        "shown": [me.cmdline(), me.environ(), me.parent().cmdline(), me.parent().environ()],
    }
    with open(f"seen-{os.environ['PACELINE_RANK']}.json", "w") as file:
        json.dump(found, file)
"""


@pytest.mark.parametrize(
    "layout",
    [
        pytest.param((), id="replicas"),
        pytest.param(("--shards", "2"), id="shards", marks=pytest.mark.nightly),
        pytest.param(("--tensor", "2"), id="tensor", marks=pytest.mark.nightly),
    ],
)
def test_a_run_seen_from_inside(layout: tuple[str, ...], tmp_path: Path) -> None:
    write_training(tmp_path, text=SPY + SMALL.replace("loss=F.cross_entropy", "loss=loss"))
    done = paceline("run", "train.py", "-n", "2", *layout, folder=tmp_path)
    seen = [json.loads((tmp_path / f"seen-{rank}.json").read_text()) for rank in range(2)]
    # Worker 0's store, and Gloo's listener in every worker: all on loopback, on one machine.
    assert [set(each["listening"]) for each in seen] == [{"127.0.0.1"}] * 2
    assert len(seen[0]["listening"]) > len(seen[1]["listening"]) > 0
    # Nothing came out of a pickle but what the spy itself put there.
    assert [each["unpickled"] for each in seen] == [["builtins.OSError"]] * 2
    (run,) = (tmp_path / "runs").iterdir()
    _assert_untold((run / "secret").read_text(), done.stdout, done.stderr, json.dumps(seen))
    _assert_untold((run / "secret").read_text(), render(Run(run)))
    for path in run.rglob("*"):
        if path.is_file() and path.name != "secret":
            _assert_untold((run / "secret").read_text(), path.read_bytes().decode("latin1"))


def _assert_untold(secret: str, *words: str) -> None:
    assert len(secret) == 64
    assert not any(secret in each for each in words)
