"""Plans that are to keep their bits on another number of workers."""

from pathlib import Path

import pytest

from paceline.jobs.plan_choice import another_layout, chosen_plan
from paceline.specs import Layout, PacelineError, Plan, SyncSettings
from paceline.specs.plans.estimate import Amount, Estimate


def test_the_parts_of_the_first_start_are_kept(tmp_path: Path) -> None:
    plan = chosen_plan(None, 4, 1, {"sync": "canonical"})
    assert plan.sync.batch_parts == plan.layout.replicas == 4
    plan.write(tmp_path / "plan.toml")
    fewer = another_layout(Plan.read(tmp_path / "plan.toml"), 3, {})
    assert (fewer.layout.replicas, fewer.sync.batch_parts) == (3, 4)
    again = another_layout(fewer, 4, {})
    assert (again.layout, again.sync) == (plan.layout, plan.sync)
    with pytest.raises(PacelineError, match="parts=4 was given for 5 replicas"):
        another_layout(plan, 5, {})


def test_an_estimate_of_the_plan_stays_one_of_it(tmp_path: Path) -> None:
    file, amount = tmp_path / "plan.toml", Amount(value=1, low=1, high=1, origin="assumed")
    layout, sync = Layout(replicas=2), SyncSettings.parse("canonical")
    estimate = Estimate(
        layout=layout,
        sync=sync,
        batch=8,
        step_seconds=amount,
        seconds={},
        peak_bytes=amount,
        bytes={},
        fits=True,
    )
    Plan(layout=layout, sync=sync, estimate=estimate).write(file)
    plan = chosen_plan(file, None, 1, {})
    assert plan.estimate is not None
    assert plan.sync == plan.estimate.sync == SyncSettings.parse("canonical:parts=2")
