"""The forms of what `--json` prints: names, versions and JSON schemas."""
