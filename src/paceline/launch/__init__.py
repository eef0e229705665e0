"""Processes onto machines: one worker of `paceline.train` per device.

One file per launcher: `local` supervises workers on this machine, which are forked from the
`nursery`; `slurm` writes, checks and submits an sbatch script, and `task` looks after each worker.
What a launcher knows of a run it writes to the run's folder.
"""
