"""What a layout will take: memory, time, and the search for the best one. No torch here."""
