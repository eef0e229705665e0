"""Random faults in a rig of light workers, and the check of its history."""
