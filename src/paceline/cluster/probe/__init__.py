"""Everything of a probe but the measuring.

`cases`: the groups and message sizes to measure. `link_fit`: lines fitted to times. `outliers`:
nodes and links that are slower than the others. `assemble`: the resulting `Cluster`.
"""
