"""Contrastive learning over the whole batch."""
