"""Peer copies and parity: the state of every worker, held in the memory of others."""
