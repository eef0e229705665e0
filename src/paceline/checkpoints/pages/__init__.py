"""A checkpoint's manifest: a small root, and a page for every node."""
