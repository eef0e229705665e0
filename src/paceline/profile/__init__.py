"""What one step of a model costs: counted without hardware."""
