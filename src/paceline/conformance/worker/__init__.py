"""What the workers of a conformance check train and measure. It uses Paceline as a user does."""
