"""Lost workers on the same node: whether they are dead, and how they voted last."""
