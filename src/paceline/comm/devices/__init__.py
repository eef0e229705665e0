"""Kinds of devices, one file each."""
