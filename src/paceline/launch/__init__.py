"""Processes onto machines: start `python -m paceline.train RUN` once per device.

One file per launcher: `local` supervises workers on this machine, `slurm` writes, checks and
submits an sbatch script. What a launcher knows of a run it writes to the run's folder.
"""
