"""Other engines that do the same job, run on the same log and the same machine."""
