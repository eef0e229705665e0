"""Tests of the simulated device, each in a process of its own, and of Paceline on it."""
