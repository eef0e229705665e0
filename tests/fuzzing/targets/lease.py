"""Terms of a run's lease."""

from fuzzing.target import toml_target
from paceline.lease.record import LeaseRecord, this_process

TARGET = toml_target(LeaseRecord.begin(1, this_process()))
