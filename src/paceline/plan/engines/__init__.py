"""Training engines, one file each with an `ENGINE`; `cost/engine_kind.py` is their protocol."""
