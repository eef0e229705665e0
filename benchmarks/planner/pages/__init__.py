"""Tables and pictures of docs pages that the planner computes."""
