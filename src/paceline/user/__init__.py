"""What a user hands over: a training, described once, and the script that describes it."""
