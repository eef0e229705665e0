"""What machines and links there are: this machine's devices and interfaces, and Slurm's nodes."""
