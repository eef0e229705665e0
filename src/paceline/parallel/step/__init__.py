"""What one step needs under any layout: loss, weights, scaling and the step clock."""
