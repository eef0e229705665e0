"""What the bar below a notebook's cell says of the time."""

import pytest

from paceline.observe.notebook_bar import bar_html


@pytest.mark.parametrize(
    ("done", "says"),
    [
        (0, "0/100 steps, 10.0 s"),
        (20, "20/100 steps, 40 s left"),
        (99.9, "100/100 steps, 0 s left"),
        (100, "100/100 steps, 10.0 s"),
        (110, "110/100 steps, 10.0 s"),  # a training that takes more steps than it announced
    ],
)
def test_the_time_left_is_never_negative(done: float, says: str) -> None:
    bar = bar_html("training", 100, "steps", done, "", 10.0)
    assert bar.endswith(f"</progress> training: {says}")


def test_names_and_notes_are_escaped() -> None:
    bar = bar_html("<b>", 1, "", 0.5, "  loss <i>", 1.0)
    assert bar.endswith(" &lt;b&gt;: 50%  loss &lt;i&gt;, 1 s left")
