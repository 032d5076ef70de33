"""Schema evolution as a pure plan: what the lake has, what the source has → what to change."""
