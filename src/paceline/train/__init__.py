"""Running a training on this worker's device: meet the others, arrange the model, step.

A launcher starts one worker per device: with `python -m paceline.train RUN`, or forked from
`paceline.train.worker.fork_server`, which has loaded torch.
"""
