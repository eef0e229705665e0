"""An asynchronous simulated accelerator for torch, `sim`: order, waits and memory as on a GPU.

`paceline_simulated.core` controls it, `paceline_simulated.device` registers it with torch. Not for
users: it runs CPU kernels, late. docs/devices.md says what it models and what it does not.
"""
