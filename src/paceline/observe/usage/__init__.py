"""Resource usage of a node's workers: cores, memory, network, GPUs and energy."""
