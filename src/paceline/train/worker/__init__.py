"""A worker's process: start, fork server, exit code and outcome."""
