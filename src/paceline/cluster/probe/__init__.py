"""What to measure of a cluster, and what follows from it: everything of a probe but the measuring.

`cases` says who communicates with whom and how much; `fit` draws lines through the times; `peers`
finds nodes and links that are slower than the others; `assemble` makes the `Cluster`.
"""
