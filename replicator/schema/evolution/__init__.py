"""Plan the changes that bring a lake table to a version of the source's schema, and replay them for a rebuild."""
