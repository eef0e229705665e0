"""From the event files of a run folder to what is known of the run."""
