"""What a chosen plan means for the training: its throughput, and how it goes on after losses."""
