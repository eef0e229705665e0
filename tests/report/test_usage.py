"""What a run used: sums over nodes and starts, energy measured, assumed or unknown."""

import time
from pathlib import Path
from typing import Any

import pytest

from command import paceline, paceline_json
from paceline.report import ReportedRun, RunReader, render, summary
from paceline.report.run.sections.usage import (
    UsageFigures,
    energy_sentence,
    usage_figures,
    usage_sentences,
)
from paceline.specs import (
    Amount,
    Cluster,
    Device,
    Estimate,
    GpuUsage,
    Layout,
    Link,
    Plan,
    Precision,
    Run,
    Traffic,
    Usage,
)
from paceline.specs.measurements.cluster import NodePower
from paceline.specs.measurements.prices import Prices
from report.folders import (
    BATCH,
    empty_run,
    finished,
    realistic_run,
    say,
    started,
    steps,
    workers,
)

LINK = Link(name="wire", latency_seconds=1e-6, bytes_per_second=1e9, source="made up")
CLUSTER = Cluster(
    nodes=2,
    devices_per_node=2,
    device=Device(
        name="core",
        kind="cpu",
        peak_flops={"fp32": 1e11},
        memory_bytes=1,
        memory_bytes_per_second=1,
        units=1,
        matmul_efficiency=1,
        watts=100,
        source="made up",
        efficiency_source="made up",
    ),
    inside=LINK,
    between=LINK,
    power=NodePower(
        other_watts=40,
        computing=0.9,
        communicating=0.5,
        idle=0.1,
        supply_efficiency=0.8,
        source="a plug meter",
    ),
    grams_per_kwh=400,
    prices=Prices(currency="EUR", per_node_hour=1.0, per_kwh=0.25, power_usage_effectiveness=1.2),
)


def usage(
    rank: int,
    *,
    generation: int = 0,
    cpu_share: float = 0.5,
    joules: dict[str, float] | None = None,
) -> Usage:
    """Five seconds of node `rank`."""
    return Usage(
        time=time.time(),
        node=f"n{rank + 1}",
        generation=generation,
        seconds=5.0,
        workers=2,
        interface="eth0",
        cores=8,
        cpu_share=cpu_share,
        memory_bytes=1_000_000_000 * (rank + 1),
        memory_total_bytes=16_000_000_000,
        network={
            "eth0": Traffic(sent_bytes=1000, received_bytes=2000),
            "lo": Traffic(sent_bytes=7, received_bytes=7),
        },
        joules=joules or {},
    )


def _run(parent: Path, *events: Usage) -> Run:
    """Ten steps on two nodes."""
    run = empty_run(parent, nodes=2)
    for rank in range(2):
        say(run, started(rank, workers=2, steps=10))
    say(run, steps(1, [1.0] * 10))
    for event in events:
        say(run, event)
    say(run, finished(10))
    return run


def _used(run: Run, cluster: Cluster | None = None) -> UsageFigures:
    read = ReportedRun.read(run, cluster)
    counted = read.summary.steps, read.summary.samples
    used = usage_figures(read.state.usage, *counted, cluster, read.prices)
    assert used is not None
    return used


def test_nodes_are_summed_up(tmp_path: Path) -> None:
    used = _used(_run(tmp_path, usage(0, cpu_share=0.2), usage(0, cpu_share=0.4), usage(1)))
    first, second = used.nodes
    assert (first.node, first.seconds, first.cores) == ("n1", 10.0, 8)
    assert first.cpu_share == pytest.approx(0.3)
    assert used.cpu_share == pytest.approx((0.2 + 0.4 + 0.5) / 3)
    assert used.peak_memory_bytes == second.peak_memory_bytes == 2_000_000_000
    assert (first.sent_bytes_per_step, first.received_bytes_per_step) == (200, 400)
    assert used.sent_bytes_per_step == 300
    assert used.device_hours == pytest.approx(15 * 2 / 3600)
    assert (used.energy, used.node_money, used.gpu_busy) == (None, None, None)


def test_measured_energy_is_what_all_counters_say(tmp_path: Path) -> None:
    counted = {"package-0": 400.0, "gpu-0": 1500.0, "gpu-1": 100.0}
    used = _used(_run(tmp_path, usage(0, joules=counted), usage(1, joules=counted)), CLUSTER)
    energy = used.energy
    assert energy is not None
    assert (energy.joules, energy.origin) == (4000, "measured")
    assert energy.joules_per_step == 400
    assert energy.joules_per_sample == pytest.approx(400 / BATCH)
    assert energy.kilowatt_hours == pytest.approx(4000 / 3.6e6)
    assert energy.grams == pytest.approx(400 * 4000 / 3.6e6)
    assert energy.money == pytest.approx(0.25 * 1.2 * 4000 / 3.6e6)
    assert energy.watts == 400
    assert used.node_money == pytest.approx(1.0 * used.node_hours)
    words = energy_sentence(used)
    assert "4 kJ (0.00111 kWh), measured by counters of 4 GPUs and 2 processors" in words
    assert "400 J per step, 6.25 J per sample" in words
    assert "0.444 g of carbon dioxide, at 400 g/kWh" in words
    assert usage_sentences(used, None)[1:] == ["0.00278 node-hours cost less than 0.01 EUR."]


def test_a_counter_that_fell_silent_makes_it_unknown(tmp_path: Path) -> None:
    whole, part = {"package-0": 400.0, "gpu-0": 1500.0}, {"package-0": 400.0}
    used = _used(
        _run(tmp_path, usage(0, joules=whole), usage(0, joules=part), usage(1, joules=whole))
    )
    assert (used.energy, used.counted_nodes) == (None, 1)
    assert "on only 1 of 2 nodes" in energy_sentence(used)


def test_without_counters_energy_is_assumed_from_the_clusters_file(tmp_path: Path) -> None:
    run = _run(tmp_path, usage(0, cpu_share=0.5), usage(1, cpu_share=1.0))
    energy = _used(run, CLUSTER).energy
    assert energy is not None
    first, second = ((40 + 2 * 100 * drawn) / 0.8 for drawn in (0.5, 0.9))
    assert energy.joules == pytest.approx(5 * (first + second))
    assert energy.origin == "assumed"
    assert "assumed from the utilization of the cores and the cluster file (a plug meter)." in (
        energy_sentence(_used(run, CLUSTER))
    )
    page = render(run, CLUSTER)
    assert "<dt>Energy</dt>" in page
    assert "assumed, " in page


@pytest.mark.parametrize("lacking", ["power", "watts", "file"])
def test_no_watts_are_made_up(tmp_path: Path, lacking: str) -> None:
    without = {
        "power": CLUSTER.model_copy(update={"power": None}),
        "watts": CLUSTER.model_copy(
            update={"device": CLUSTER.device.model_copy(update={"watts": None})}
        ),
        "file": None,
    }[lacking]
    run = _run(tmp_path, usage(0), usage(1))
    assert _used(run, without).energy is None
    page = render(run, without)
    assert "No power counters are readable on these nodes" in page
    assert "<dt>Energy</dt>" not in page
    assert "<dt>Throughput</dt>" in page


def test_gpus_are_as_busy_as_they_said(tmp_path: Path) -> None:
    def with_gpus(rank: int, *busy: float | None) -> Usage:
        gpus = [
            GpuUsage(index=index, busy=each, memory_bytes=10**9 * (index + 1))
            for index, each in enumerate(busy)
        ]
        return usage(rank).model_copy(update={"gpus": gpus})

    run = _run(tmp_path, with_gpus(0, 0.8, 0.6), with_gpus(1, 0.7, None))
    used = _used(run)
    assert used.gpu_busy == pytest.approx(0.7)
    assert used.nodes[0].gpu_busy == pytest.approx(0.7)
    assert used.nodes[1].gpu_peak_memory_bytes == 2 * 10**9
    accelerated = CLUSTER.model_copy(
        update={"device": CLUSTER.device.model_copy(update={"kind": "accelerator"})}
    )
    energy = _used(run, accelerated).energy
    assert energy is not None
    assert energy.joules == pytest.approx(2 * 5 * (40 + 2 * 100 * (0.1 + 0.8 * 0.7)) / 0.8)
    assert ">GPUs<" in render(run)


def test_starts_are_summed_up_and_each_step_is_dearer(tmp_path: Path) -> None:
    counted = {"package-0": 100.0}
    run = empty_run(tmp_path, nodes=1)
    for generation in range(2):
        say(run, started(0, workers=1, steps=10, generation=generation))
        say(run, usage(0, generation=generation, joules=counted))
    say(run, steps(1, [1.0] * 10, generation=1))
    say(run, finished(10, generation=1))
    used = _used(run)
    assert len(used.nodes) == 1
    assert used.energy is not None
    assert (used.energy.joules, used.energy.joules_per_step) == (200, 20)


def test_a_hanging_run_is_not_taken_for_one_that_gets_on(tmp_path: Path) -> None:
    run = empty_run(tmp_path, nodes=1)
    long_ago = time.time() - 100
    say(run, started(0, workers=1, at=long_ago))
    say(run, steps(1, [1.0], at=long_ago))
    say(run, workers(0, 1, 0.1, at=long_ago))
    say(run, usage(0))
    state = RunReader(run).refresh()
    assert state.status == "running"
    assert state.quiet_seconds > 90
    assert state.workers[0].age_seconds > 90


def test_a_node_that_only_says_what_it_uses_has_not_started(tmp_path: Path) -> None:
    run = empty_run(tmp_path, nodes=1)
    say(run, usage(0))
    assert RunReader(run).refresh().status == "waiting"
    assert _used(run).sent_bytes_per_step is None  # no step yet


def test_a_run_of_many_nodes_shows_some_of_them(tmp_path: Path) -> None:
    run = realistic_run(tmp_path)
    for rank in range(100):
        say(run, usage(rank), file="many")
    page = render(run)
    assert "The first 64 of 100 nodes." in page
    section = page[page.index('<section id="usage">') :]
    assert section[: section.index("</section>")].count('<th scope="row">') == 64


def test_a_run_without_it_has_no_such_section(tmp_path: Path) -> None:
    run = _run(tmp_path)
    assert ReportedRun.read(run).to_dict()["usage"] is None
    assert 'id="usage"' not in render(run)


@pytest.mark.parametrize(
    ("precision", "peak", "share"), [("fp32", 1e9, 0.32), ("fp32", None, None), ("bf16", 1e9, None)]
)
def test_the_share_of_the_peak_is_that_of_the_plan(
    tmp_path: Path, precision: Precision, peak: float | None, share: float | None
) -> None:
    amount = Amount(value=1, low=1, high=1, origin="assumed")
    plan = Plan(
        estimate=Estimate(
            layout=Layout(precision=precision),
            batch=BATCH,
            step_seconds=amount,
            seconds={},
            peak_bytes=amount,
            bytes={},
            fits=True,
            flops_per_sample=1e6,
            device_peak_flops=peak,
        )
    )
    run = _run(tmp_path, usage(0))
    plan.write(run.plan_file)
    figures = summary(RunReader(run).refresh())
    assert figures.samples_per_second == pytest.approx(640)
    assert figures.flops_share == (share if share is None else pytest.approx(share))
    assert ("Model FLOPs utilization (MFU): 32 %" in render(run)) == (share is not None)


def test_prices_come_as_for_a_plan(tmp_path: Path) -> None:
    """Reports read them from the cluster file only, while plans also took the site's."""
    CLUSTER.write(tmp_path / "cluster.toml")
    run = _run(tmp_path, usage(0), usage(1))

    def money(*words: str) -> tuple[Any, str]:
        found = paceline_json("report", run.path, *words, folder=tmp_path)["usage"]
        return found["node_money"], found["currency"]

    own, currency = money("--cluster", "cluster.toml")
    assert CLUSTER.prices is not None
    hours = own / CLUSTER.prices.per_node_hour
    assert money("--price", "7") == (pytest.approx(7 * hours), "")
    twice = ("--price", str(2 * CLUSTER.prices.per_node_hour), "--cluster", "cluster.toml")
    assert money(*twice)[0] == pytest.approx(2 * own)
    site = tmp_path / "site.toml"
    site.write_text('[prices]\ncurrency = "CHF"\nper_node_hour = 3.0\n')
    site.chmod(0o600)
    assert money() == (pytest.approx(3 * hours), "CHF")
    assert money("--cluster", "cluster.toml") == (pytest.approx(3 * hours), "CHF")
    assert currency != "CHF"


def test_the_clusters_file_is_for_runs(tmp_path: Path) -> None:
    CLUSTER.write(tmp_path / "cluster.toml")
    run = _run(tmp_path, usage(0), usage(1))
    paceline("report", run.path, "--cluster", "cluster.toml", folder=tmp_path)
    assert "a plug meter" in (tmp_path / "report.html").read_text()
    study = tmp_path / "study"
    study.mkdir()
    (study / "study.toml").touch()
    said = paceline("report", study, "--cluster", "cluster.toml", folder=tmp_path, expect=2).stderr
    assert "--cluster cluster.toml was given, but" in said
    assert "is a study" in said
    assert "give it with one of the study's runs" in said
