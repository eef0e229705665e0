"""A mixture of experts, with a loss over the whole batch."""
