"""The site's schedulers: submit a run's job, follow it, and place its workers.

`scheduler` is the protocol that each kind implements, `kinds/` has one file or folder per kind.
Another package adds a kind by an entry point of the group `paceline.schedulers`.
"""
