"""What a run records: events, traces, usage; and the listeners that forward metrics."""
