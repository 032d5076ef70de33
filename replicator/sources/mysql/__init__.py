"""Connect to the source database and read table definitions."""
