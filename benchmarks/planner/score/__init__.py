"""The planner's predictions against published measurements."""
