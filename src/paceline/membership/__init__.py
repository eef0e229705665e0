"""Membership of a run: leases, heartbeats and numbered generations of workers. No torch here."""
