"""Reports: how fast they are made, and whether they name the right cause."""
