"""Strong and weak scaling on a testbed against the limits of devices and links."""
