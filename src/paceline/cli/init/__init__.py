"""`paceline init`: the command, and the training that it writes."""
