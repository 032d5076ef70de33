"""The inputs of pipelines: which lake tables they are, and their rows and changes at one boundary of the source."""
