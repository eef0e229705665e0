"""How membership traffic grows with the number of workers."""
