"""`paceline help`: the command, and the texts of its topics."""
