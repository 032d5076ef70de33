"""The status of a mirror, read from the lake: without Java, Spark or a running mirror process."""
