"""What several benchmarks share: the GPT they train, processes, blocks in turn, tables."""
