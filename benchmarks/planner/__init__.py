"""How good and how fast the planner's predictions are, and the tables of docs pages."""
