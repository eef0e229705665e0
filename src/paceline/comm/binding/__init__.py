"""Which device and which cores a worker uses."""
