"""Decoding of raw records of the log to typed change events, on the JVM."""
