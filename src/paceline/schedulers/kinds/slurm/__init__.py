"""Slurm."""

from paceline.schedulers.kinds.slurm.slurm import Slurm

SCHEDULER = Slurm()
