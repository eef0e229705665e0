"""Running a training on this worker's device: meet the others, arrange the model, step.

A worker is started as `python -m paceline.train RUN`, once per device, by a launcher.
"""
