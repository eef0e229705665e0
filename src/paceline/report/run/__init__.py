"""The report of one run: each file computes and draws one topic."""
