"""What Paceline adds to a training step and to start-up, against bare PyTorch."""
