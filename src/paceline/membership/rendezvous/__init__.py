"""The start of a run: its workers find each other along a tree of nodes. No torch here."""
