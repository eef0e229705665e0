"""Time, bytes and samples to a target loss over slow links."""
