"""Tables to which the events of topics are appended that are no change events."""
