"""Paceline's data loading against a bare DataLoader, and streaming from S3."""
