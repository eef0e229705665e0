"""What is seen of a run while it runs: events, traces, versions, progress, what it uses."""
