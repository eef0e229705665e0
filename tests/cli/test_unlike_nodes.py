"""Nodes of a job with different versions of torch, under Slurm."""

from pathlib import Path

import pytest

from command import paceline, write_training

pytestmark = [pytest.mark.slurm, pytest.mark.nightly]

OTHER = """
import socket
from importlib import metadata

if socket.gethostname() == "n2":
    true = metadata.version
    metadata.version = lambda name: "2.12.0" if name == "torch" else true(name)
"""
"""More of a train.py: the node n2 seems to have another torch."""


def test_a_node_with_another_torch_is_named(cluster: str, shared_folder: Path) -> None:
    write_training(shared_folder, OTHER)
    words = ("submit", "train.py", "--nodes", "3", "--testbed", cluster, "--wait")
    said = paceline(*words, folder=shared_folder, expect=2).stderr
    assert (
        "the nodes have different software: torch 2.13.0 on n1, n3 and torch 2.12.0 on n2" in said
    )
