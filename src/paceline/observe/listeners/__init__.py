"""The built-in listeners, one file each."""
