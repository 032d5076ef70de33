"""Where the rows of a table are, and how many it has."""
