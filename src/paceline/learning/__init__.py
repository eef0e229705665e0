"""Learning at scale: how noisy gradients are, how large a batch pays, and with which rates."""
