"""What is seen of a run while it runs: events, versions, progress, what it uses."""
