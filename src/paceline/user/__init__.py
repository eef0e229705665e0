"""The user's side: the description of a training, and the script that holds it."""
