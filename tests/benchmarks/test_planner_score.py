"""`benchmarks/planner/score` reads a case file and prints its scores."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
COMMAND = [sys.executable, "-m", "benchmarks.planner.score"]
HEADER = (
    "device,gpus,gpus_per_node,inter_node_gbps_per_gpu,hidden,heads,layers,vocab,seq,global_batch,"
    "micro_batch,tp,pp,dp,zero,recompute,precision,step_s,mem_gb,oom,group"
)
ROWS = """\
a100,64,8,100,3072,32,30,50257,2048,512,8,1,1,64,0,full,fp16,3.5,,,a
a100,64,8,100,3072,32,30,50257,2048,512,8,2,1,32,0,full,fp16,3.9,,,a
a100,64,8,100,3072,32,30,50257,2048,512,8,8,1,8,0,full,fp16,6.0,,,a
a100_80gb,8,8,,12288,96,96,51200,2048,8,1,8,1,,1,,bf16,,,1,b
h100,128,8,,4096,32,32,32000,4096,256,2,1,1,,3,selective,bf16,1.1,60,0,
b200,8,,400,4096,32,32,128256,8192,128,1,1,1,8,1,,fp8,4.0,,,"""


def score(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *arguments], cwd=ROOT, capture_output=True, text=True, check=False
    )


@pytest.fixture
def cases(tmp_path: Path) -> Path:
    path = tmp_path / "cases.csv"
    path.write_text(f"{HEADER}\n{ROWS}\n")
    return path


def test_a_case_file(cases: Path) -> None:
    done = score("--cases", str(cases), "--json")
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    catalog, fitted = said["time"]
    assert (catalog["mode"], catalog["rows"]) == ("catalog", 5)
    assert (fitted["mode"], fitted["rows"]) == ("fitted on 1", 4)
    for row in (catalog, fitted):
        assert 0 <= row["median"] <= row["mean"] * 2
        assert row["null_mean"] > 0
        assert 0 <= row["coverage"] <= 1
        assert row["groups"] == 1
        assert 0 <= row["regret_mean"] <= row["regret_max"] < 1
    (memory,) = said["memory"]
    assert (memory["oom_rows"], memory["oom_missed"]) == (1, 0)


def test_rows_of_contexts_and_experts(tmp_path: Path) -> None:
    """They were left out; now only those are that divide an unknown number of experts."""
    path = tmp_path / "cases.csv"
    rows = [
        "h100,16,,,4096,32,32,32000,32768,16,1,2,1,2,1,none,bf16,9.0,,,,4,1,,",
        "h100,16,,,4096,32,32,32000,4096,256,1,1,1,16,1,none,bf16,9.0,,,,1,8,8,2",
        "h100,16,,,4096,32,32,32000,4096,256,1,1,1,16,1,none,bf16,9.0,,,,1,8,,",
    ]
    path.write_text("\n".join([f"{HEADER},cp,ep,experts,active", *rows]))
    done = score("--cases", str(path), "--json")
    assert done.returncode == 0, done.stderr
    assert "left out: 1 rows" in done.stderr
    assert json.loads(done.stdout)["time"][0]["rows"] == 2


def test_a_file_without_the_columns(tmp_path: Path) -> None:
    path = tmp_path / "cases.csv"
    path.write_text("device,gpus\na100,8\n")
    done = score("--cases", str(path))
    assert done.returncode == 2
    assert "lacks dp, global_batch" in done.stderr


def test_absent_data(tmp_path: Path) -> None:
    done = score("--data", str(tmp_path / "nothing"))
    assert done.returncode == 2
    assert "give the tables' folder with --data" in done.stderr
