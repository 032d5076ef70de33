"""Read the rows of a source table into a staging table, in parts and without locks, while the source changes."""
