"""The planner: predicted time and memory of layouts, and the search for the best one."""
