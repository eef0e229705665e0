"""The trainings, as a user of each framework writes them; model and data are the examples'."""
