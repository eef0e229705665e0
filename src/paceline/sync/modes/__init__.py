"""The built-in synchronization modes: one file or folder each, found by its name.

Each has its default settings as `MODE`. Names that start with an underscore are shared parts.
"""
