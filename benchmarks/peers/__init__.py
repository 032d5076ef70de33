"""Other engines for the same task, on the same log and the same machine."""
