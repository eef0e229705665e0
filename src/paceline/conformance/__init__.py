"""Conformance: what `paceline doctor --devices` proves on the devices of a machine or cluster."""
