"""What a probe and runs teach the planner."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from paceline.cluster.catalog import read_cluster
from paceline.plan.calibration.calibrate import fit, from_priors
from paceline.plan.calibration.measured_runs import MARK, Ran, fitted_numbers, rows, write_numbers
from paceline.plan.calibration.priors import priors_for
from paceline.plan.search.ranking import search
from paceline.profile.families import decoder
from paceline.specs import CollectiveCost, FittedNumber, Layout, MatmulRate
from plan.shapes import SMALL, cluster

LAYOUTS = [
    Layout(replicas=16, micro_batch=2),
    Layout(shards=16, micro_batch=2),
    Layout(replicas=4, tensor=4, micro_batch=2),
    Layout(replicas=4, pipeline=4, micro_batch=2),
    Layout(replicas=2, shards=8, micro_batch=4),
    Layout(replicas=8, tensor=2, micro_batch=4),
]
WHERE = cluster(nodes=2)


def _ran(slower: float) -> list[Ran]:
    """Runs on a cluster whose devices are so many times slower than the catalog says."""
    truth = from_priors().numbers
    truth = replace(truth, matmul_rate=truth.matmul_rate / slower)
    found = []
    for layout in LAYOUTS:
        run = Ran(decoder(SMALL), layout, 2, 8, 512, step_seconds=1.0)
        (steps,) = rows([run], WHERE)
        found.append(replace(run, step_seconds=float(steps.predicted(truth)[0])))
    return found


def test_the_next_plan_is_better() -> None:
    runs = _ran(slower=1.3)
    known, unknown = rows(runs[:4], WHERE), rows(runs[4:], WHERE)
    before, after = from_priors(), fit(known)

    def error(found: object) -> float:
        of = [found.predict(each)[0][0] / each.seconds[0] for each in unknown]  # type: ignore[attr-defined]
        return float(np.abs(np.log(of)).max())

    assert error(before) > 0.15
    assert error(after) < 0.05


def test_what_runs_have_shown_outlives_them_in_the_cluster_file(tmp_path: Path) -> None:
    runs = _ran(slower=1.3)
    numbers = fitted_numbers(fit(rows(runs, WHERE)))
    file = tmp_path / "cluster.toml"
    written = '# mine\nnodes = 2\ndevices_per_node = 8\ndevice = "a100-80gb"\n'
    written += 'inside = "nvlink3"\nbetween = "infiniband-hdr"\n'
    file.write_text(written)
    for _ in range(2):  # a second time replaces the first
        write_numbers(file, numbers)
    assert file.read_text().startswith("# mine\n")
    assert file.read_text().count(MARK) == 1
    there = read_cluster(file)
    later = from_priors(priors_for(there))
    unknown = rows(runs, there)
    off = [later.predict(each)[0][0] / each.seconds[0] for each in unknown]
    assert np.abs(np.log(off)).max() < 0.1
    assert priors_for(there)["launch_seconds"].origin == "measured"


def test_a_probe_replaces_guesses() -> None:
    plain = priors_for(WHERE)
    device = WHERE.device.model_copy(
        update={
            "kind": "cpu",
            "launch_seconds": 1e-5,
            "matmuls": (MatmulRate(size=512, precision="fp32", flops_per_second=1e11),),
        }
    )
    line = CollectiveCost(
        operation="all-reduce",
        members=2,
        members_per_node=1,
        latency_seconds=1e-4,
        bytes_per_second=1e8,
    )
    probed = priors_for(WHERE.model_copy(update={"device": device, "collectives": (line,)}))
    assert list(probed) == list(plain)
    assert probed["bucket_rate"].value == 1.0
    # Measured lines are held against the prior rate, which must stay.
    assert probed["between_rate"].value == plain["between_rate"].value
    assert probed["between_rate"].spread < plain["between_rate"].spread
    assert probed["step_seconds"].value == pytest.approx(700 * 1e-5)


def test_numbers_of_other_versions_are_left_alone() -> None:
    old = WHERE.model_copy(update={"numbers": {"gone": FittedNumber(value=1.0, spread=0.1)}})
    assert priors_for(old) == priors_for(WHERE)


def test_a_layout_that_ran_takes_as_long_as_it_took() -> None:
    """Also where the fit takes it for an outlier: it must not be ranked first for that."""
    runs = _ran(slower=1.3)
    slow = replace(runs[0], step_seconds=2 * runs[0].step_seconds)
    found = fit(rows([slow, *runs[1:]], WHERE))
    profile = slow.profile
    places = search(profile, WHERE, 512, found, slow.layout.precision)
    (steps,) = rows([slow], WHERE)
    assert found.model(steps).times(steps.layouts, steps.batch).total[0] < 0.8 * slow.step_seconds
    (place,) = np.flatnonzero(np.isclose(places.seconds, slow.step_seconds, rtol=1e-9))
    assert (np.diff(places.seconds) >= 0).all()
    (estimate,) = places.chosen(found, np.array([place]), slow.layout.precision)
    assert estimate.layout.replicas == 16
    assert estimate.step_seconds.value == pytest.approx(slow.step_seconds)
    assert sum(estimate.seconds.values()) == pytest.approx(slow.step_seconds)
    elsewhere = found.measured(replace(steps, batch=2 * steps.batch))
    assert np.isnan(elsewhere).all()
