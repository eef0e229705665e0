"""How replicas agree is planned: by what links can carry, and what is assumed of learning."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from command import paceline_json, write_training
from paceline.cli.app import app
from paceline.cluster.catalog import link
from paceline.cluster.collectives import COLLECTIVES, UNPROBED
from paceline.plan.answer import answer, plan_of
from paceline.plan.calibration.calibrate import Steps, from_priors
from paceline.plan.cost.device_groups import group_of
from paceline.plan.cost.layout_table import Layouts
from paceline.plan.cost.memory import memory
from paceline.plan.engines.paceline import ENGINE as PACELINE
from paceline.plan.limits import Limits
from paceline.plan.search.best_layout import WORTH_IT, Best, best_on
from paceline.plan.search.finalists import simulated
from paceline.profile.families import Decoder, decoder
from paceline.specs import (
    Answer,
    Cluster,
    Device,
    Layout,
    PacelineError,
    Plan,
    Profile,
    SyncSettings,
)
from paceline.sync.modes._local_steps import LocalSteps
from paceline.sync.modes.allreduce import AllReduce
from paceline.sync.modes.local import Local

GPT = decoder(Decoder(layers=8, hidden=512, heads=8, seq=64, vocab=8192))
BATCH = 64
MEGABIT = 1e6 / 8
CPU = Device(
    name="a computer",
    kind="cpu",
    peak_flops={"fp32": 1e11, "bf16": 1e11},
    memory_bytes=16_000_000_000,
    memory_bytes_per_second=2e10,
    units=8,
    matmul_efficiency=0.8,
    source="assumed",
    efficiency_source="assumed",
)
MODES = [
    "allreduce",
    "allreduce:compress=int8",
    "allreduce:compress=topk",
    "canonical",
    "local:every=8",
    "local:every=8,overlap=2,fragments=4",
    "diloco:every=8,compress=int8",
    "sparseloco:every=8",
    "gossip",
    "easgd",
    "stale",
]


def computers(megabits: float, nodes: int = 4) -> Cluster:
    between = link("ethernet-1g").model_copy(update={"bytes_per_second": megabits * MEGABIT})
    return Cluster(
        nodes=nodes, devices_per_node=1, device=CPU, inside=link("pcie4"), between=between
    )


def planned(
    where: Cluster, sync: SyncSettings | None = None, profile: Profile = GPT
) -> tuple[Answer, Best]:
    return answer(
        {"bf16": profile},
        where,
        [BATCH],
        [where.nodes],
        from_priors(),
        "fastest",
        Limits(where),
        sync,
    )


def steps(where: Cluster, sync: SyncSettings, layout: Layout | None = None) -> Steps:
    chosen = layout or Layout(replicas=where.nodes)
    return Steps(
        profile=GPT,
        cluster=where,
        precision="bf16",
        engine=PACELINE.engine(GPT, where, "bf16", sync),
        layouts=Layouts.of([chosen], BATCH),
        batch=np.array([float(BATCH)]),
    )


def step_seconds(where: Cluster, sync: SyncSettings) -> float:
    return float(steps(where, sync).predicted(from_priors().numbers)[0])


def test_local_steps_on_a_slow_network_and_all_reduce_on_a_fast_one() -> None:
    slow, best = planned(computers(100))
    assert isinstance(slow.estimate.sync, LocalSteps)
    assert slow.estimate.layout.replicas == 4
    fast, _ = planned(computers(10_000))
    assert fast.estimate.sync == AllReduce()
    assert "all-reduce of the gradients in every step" in fast.sync_reason
    assert not any("assumed" in each for each in fast.remarks)
    plain = best.others[0]
    assert plain.estimate.sync == AllReduce()
    assert best.learned_per_second > WORTH_IT * plain.learned_per_second


def test_the_reason_is_told_and_what_was_assumed() -> None:
    said, best = planned(computers(100))
    assert said.estimate.sync.short() in said.sync_reason
    assert "links would take" in said.sync_reason
    assert [each for each in said.remarks if f"{said.estimate.extra_samples:.2f} x" in each]
    rejected = {each.what: each for each in said.alternatives}
    assert "to the same loss" in rejected["plain all-reduce"].why
    assert rejected["plain all-reduce"].sync == AllReduce()
    assert {each.estimate.sync.mode for each in best.others} == {"allreduce", "local"}


def test_a_way_to_agree_that_is_asked_for_is_taken() -> None:
    for words in ("allreduce", "local:every=4", "gossip:graph=ring"):
        said, _ = planned(computers(100), SyncSettings.parse(words))
        assert said.estimate.sync == SyncSettings.parse(words)
        assert plan_of(said).sync == SyncSettings.parse(words)
        if said.estimate.layout.replicas > 1:
            assert "as requested" in said.sync_reason


def test_the_same_bits_are_planned_with_replicas_alone_and_a_forward_for_each_part() -> None:
    seconds = []
    for words, samples in (("canonical", 16), ("canonical:parts=4", 16), ("canonical:parts=8", 8)):
        said, _ = planned(computers(10_000), SyncSettings.parse(words))
        assert said.estimate.layout.replicas == said.estimate.layout.workers == 4
        assert said.estimate.layout.micro_batch == samples
        assert "identical bits on any number of replicas" in said.sync_reason
        assert said.estimate.extra_samples == 1.0
        seconds.append(said.estimate.step_seconds.value)
    assert seconds[0] == seconds[1] <= seconds[2]


def test_what_cannot_agree_so_is_refused() -> None:
    with pytest.raises(PacelineError, match="pull=1 was given for 4 replicas"):
        planned(computers(100), SyncSettings.parse("easgd:pull=1"))
    with pytest.raises(PacelineError, match="parts=3 was given for 4 replicas"):
        planned(computers(100), SyncSettings.parse("canonical:parts=3"))
    with pytest.raises(PacelineError, match="overlap=9"):
        planned(computers(100), SyncSettings.parse("local:every=8,overlap=9"))


def test_one_node_has_nothing_to_agree_on_slowly() -> None:
    said, _ = planned(computers(100, nodes=1))
    assert said.estimate.sync == AllReduce()
    assert said.sync_reason == ""


def test_a_plan_with_local_steps_survives_its_file(tmp_path: Path) -> None:
    plan = plan_of(planned(computers(100))[0])
    plan.write(tmp_path / "plan.toml")
    again = Plan.read(tmp_path / "plan.toml")
    assert again == plan
    assert isinstance(again.sync, LocalSteps)
    assert "[sync]" in (tmp_path / "plan.toml").read_text()


@pytest.mark.parametrize("words", MODES)
def test_a_faster_link_never_makes_a_step_longer(words: str) -> None:
    seconds = [
        step_seconds(computers(rate), SyncSettings.parse(words)) for rate in (10, 100, 1e3, 1e5)
    ]
    assert seconds == sorted(seconds, reverse=True)
    assert seconds[0] > 1.05 * seconds[-1]


@given(st.sampled_from([2, 4, 8, 32]), st.integers(0, 1))
def test_exchanges_are_shared_by_the_steps_between_them(every: int, overlap: int) -> None:
    where = computers(100)
    alone = step_seconds(computers(1e9), Local(every=every, overlap=overlap))
    found = step_seconds(where, Local(every=every, overlap=overlap))
    whole = step_seconds(where, Local(every=1))
    # What one exchange takes, less what `overlap` steps hide; no less than it takes in all.
    exchange = whole - alone
    least = max((exchange - overlap * alone) / every, exchange / every - alone, 0.0)
    assert found - alone == pytest.approx(least, rel=0.05, abs=0.02 * alone)


@given(st.sampled_from([2, 4, 16]), st.sampled_from([1, 2, 8]), st.floats(1e6, 1e9))
def test_all_to_all_passes_what_leaves_a_node_over_its_links(
    nodes: int, per_node: int, nbytes: float
) -> None:
    where = computers(100, nodes).model_copy(update={"devices_per_node": per_node})
    group = group_of(where, from_priors().numbers, np.array([float(nodes * per_node)]), 1.0)
    free = replace(group, between_latency=np.zeros(()), call=np.zeros(()))
    found = UNPROBED["all-to-all"](np.asarray(nbytes), free)
    leaving = nbytes * (nodes - 1) / nodes
    assert found == pytest.approx(leaving / float(group.between_rate))
    if per_node == 1:
        assert found == pytest.approx(COLLECTIVES["all-gather"](np.asarray(nbytes), free))


def test_compression_and_rarer_exchanges_shorten_a_step_on_a_slow_network() -> None:
    where = computers(100)
    order = ["stale", "allreduce", "allreduce:compress=bf16", "allreduce:compress=int8"]
    order += ["local:every=32", "diloco:every=32,compress=int8"]
    seconds = [step_seconds(where, SyncSettings.parse(words)) for words in order]
    assert seconds == sorted(seconds, reverse=True)
    # Over one server go all gradients and all weights.
    assert seconds[0] > 1.5 * seconds[1]


def test_synchronization_takes_memory() -> None:
    layouts = Layouts.of([Layout(replicas=4), Layout(replicas=2, shards=2)], 64)
    held = {
        words: memory(
            GPT,
            layouts,
            64.0,
            PACELINE.engine(GPT, computers(100), "bf16", SyncSettings.parse(words)),
        ).sync_state
        for words in MODES
    }
    assert (held["allreduce"] == 0).all()
    of_parameter = held["diloco:every=8,compress=int8"][0] / GPT.parameters
    assert of_parameter == pytest.approx(20)  # anchor, momentum, rest, launched, change
    assert held["local:every=8"][1] == pytest.approx(held["local:every=8"][0] / 2)


@pytest.mark.parametrize("words", MODES)
def test_simulated_steps_are_close_to_the_closed_form(words: str) -> None:
    chosen = steps(computers(1000), SyncSettings.parse(words), Layout(replicas=2, pipeline=2))
    numbers = from_priors().numbers
    (one,) = simulated(chosen, numbers)
    assert one.seconds == pytest.approx(float(chosen.predicted(numbers)[0]), rel=0.05)


def test_fast_clusters_are_searched_for_all_reduce_only() -> None:
    best = best_on({"bf16": GPT}, computers(100_000), BATCH, from_priors())
    assert best is not None
    assert best.others == ()
    assert best.estimate.sync == AllReduce()


@pytest.mark.nightly
def test_a_run_follows_the_plan(tmp_path: Path) -> None:
    plan = plan_of(planned(computers(10, nodes=2))[0])
    plan.write(tmp_path / "plan.toml")
    write_training(tmp_path)
    ran = paceline_json("run", "train.py", "--plan", "plan.toml", folder=tmp_path)
    assert ran["workers"] == 2
    assert ran["sync"] == plan.sync.short()
    assert isinstance(plan.sync, LocalSteps)


def test_the_command_line_says_it_and_can_ask_for_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    computers(100).write(tmp_path / "cluster.toml")
    words = ["plan", "--model", "gpt: layers=8 width=512 heads=8 seq=64 vocab=8192"]
    words += ["--batch", "64", "--nodes", "4", "--sync"]
    shown = CliRunner().invoke(app, [*words, "auto"])
    assert "plain all-reduce" in shown.stdout
    assert "Replicas synchronize by an outer step" in shown.stdout
    assert "assumed, not measured" in shown.stdout
    asked = CliRunner().invoke(app, [*words, "allreduce:compress=int8", "--json"])
    assert json.loads(asked.stdout)["estimate"]["sync"]["compress"] == "int8"
    assert Plan.read(tmp_path / "plan.toml").sync == AllReduce(compress="int8")
    with pytest.raises(PacelineError, match="unknown synchronization mode"):
        CliRunner().invoke(app, [*words, "lokal"], catch_exceptions=False)
