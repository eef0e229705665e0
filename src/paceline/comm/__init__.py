"""How workers communicate: rendezvous, signed store, process groups, devices."""
