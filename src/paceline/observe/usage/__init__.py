"""What a node's workers use: cores, memory, network, GPUs and energy."""
