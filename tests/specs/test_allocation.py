"""What a site asks a job to name."""

import pytest

from paceline.specs import Allocation, PacelineError


def test_the_next_job_of_a_run_starts_when_it_can() -> None:
    first = Allocation(account="phys", dependency="afterok:1", begin="20:00")
    assert first.given == ["account", "dependency", "begin"]
    assert first.for_another_job() == Allocation(account="phys")


def test_other_options_look_like_options() -> None:
    assert Allocation(options=("--comment=x", "-J")).given == ["options"]
    with pytest.raises(PacelineError, match="comment=x is not an option of the scheduler"):
        Allocation(options=("comment=x",))
