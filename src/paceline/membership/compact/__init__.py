"""Compact forms of rosters, replies and facts in messages."""
