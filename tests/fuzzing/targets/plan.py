"""Plan files."""

from fuzzing.target import toml_target
from paceline.specs import Layout, Plan

TARGET = toml_target(Plan(layout=Layout(replicas=2)))
