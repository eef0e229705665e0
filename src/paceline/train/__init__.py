"""The training loop: the trainer, gradients, state, fault tolerance and the worker's process.

A launcher starts one worker per device: with `python -m paceline.train RUN`, or forked from
`paceline.train.worker.fork_server`, which has loaded torch.
"""
