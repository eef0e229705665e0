"""The training as a user of each framework writes it, and what all of them share."""
