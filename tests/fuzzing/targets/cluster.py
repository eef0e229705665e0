"""Cluster files."""

from fuzzing.target import toml_target
from paceline.cluster.catalog import usual_cluster

TARGET = toml_target(usual_cluster("h100-80gb", 8))
