"""Compare a mirror with its source."""
