"""The lease of a run: at most one process or job trains it, wherever it trains."""
