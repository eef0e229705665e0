"""Time to recover from faults, and what is lost, under Paceline, torchrun and torchft."""
