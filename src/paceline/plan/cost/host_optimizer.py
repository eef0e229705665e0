"""Time of an optimizer that the hosts of a cluster run, with its state in their memory."""

import numpy as np

from paceline.cluster.collectives import Array

PARAMETERS_PER_SECOND = 4e9
"""Of one host with Adam on all cores: one billion parameters take 0.22 s, ten billion 2.57 s (Ren
et al. 2021, arXiv:2101.06840, table 4, recalled)."""
COPIED_BYTES = 6
"""Of a parameter: a gradient in fp32 to the host, a weight in 16 bits back."""
COPY_BYTES_PER_SECOND = 25e9
"""Of one device to and from pinned memory: PCIe 4.0 with 16 lanes, assumed for all devices."""


def host_seconds(parameters: Array, devices_per_node: int) -> Array:
    """Return the seconds to update `parameters` of each device, which share their node's host; the
    copies overlap nothing."""
    each = COPIED_BYTES / COPY_BYTES_PER_SECOND + devices_per_node / PARAMETERS_PER_SECOND
    return np.asarray(parameters * each)
