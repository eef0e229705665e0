"""The state of a training: what is saved, restored and exported."""
