"""The site's schedulers: submit a run, watch it, and tell a worker its rank."""
