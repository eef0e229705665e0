"""Workers on this machine: a supervisor that starts one process per device from a fork server."""
