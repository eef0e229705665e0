"""Fuzzing of each file format and each message: `make fuzz`."""
