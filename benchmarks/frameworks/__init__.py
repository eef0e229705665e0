"""One training under bare DDP, Paceline and other frameworks."""
