"""What the throughput check says of measured speeds.

Failed before: noise alone decided, since plain PyTorch against itself was only shown.
"""

import pytest

from paceline.conformance.check import State
from paceline.conformance.checks.throughput import verdict

CALM = [0.98, 0.99, 1.0, 1.0, 1.0, 1.01, 1.02]
NOISY = [0.7, 0.85, 1.0, 1.0, 1.1, 1.3, 1.4]


@pytest.mark.parametrize(
    ("around", "null", "state"),
    [
        (1.0, CALM, "passed"),
        (0.9, CALM, "failed"),
        (0.95, CALM, "not resolved"),
        (0.9, NOISY, "not resolved"),
        (1.0, NOISY, "not resolved"),
    ],
)
def test_only_a_calm_machine_decides(around: float, null: list[float], state: State) -> None:
    assert verdict([around * each for each in CALM], null) == state
