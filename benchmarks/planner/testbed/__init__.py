"""The planner's predictions against runs on a testbed."""
