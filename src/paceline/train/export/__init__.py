"""Export of the trained weights for other programs: one file per format."""
