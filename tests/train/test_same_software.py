"""Nodes with different software are refused in one line. Before, they trained together, or failed
in a way that did not name the cause."""

import platform

import pytest
import torch

from paceline.specs import PacelineError
from paceline.train.elastic.same_software import refuse_different, software

SAME = {"Python": "3.11", "paceline": "0.1.0", "torch": "2.13.0"}


def test_the_software_of_a_node() -> None:
    found = software()
    assert found["torch"] == torch.__version__.partition("+")[0]
    assert platform.python_version().startswith(f"{found['Python']}.")


def test_equal_nodes_pass() -> None:
    refuse_different((f"n{number}", SAME) for number in range(1, 9))


def test_one_line_says_which_node_has_what() -> None:
    nodes = [(f"n{number}", SAME) for number in range(1, 7)]
    nodes.append(("n7", SAME | {"torch": "2.12.0", "Python": "3.12"}))
    with pytest.raises(PacelineError) as refused:
        refuse_different(nodes)
    assert refused.value.problem == (
        "the nodes have different software: Python 3.11 on n1, n2, n3 and 3 more and Python 3.12"
        " on n7; torch 2.13.0 on n1, n2, n3 and 3 more and torch 2.12.0 on n7"
    )
