"""What is done to the blocks of a model one by one: recomputation and compilation."""
