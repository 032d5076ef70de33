"""Provide Java, its libraries, and the Spark session."""
