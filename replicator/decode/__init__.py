"""Raw records of the log → typed change events, on the JVM."""
