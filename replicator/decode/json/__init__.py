"""Change events in JSON, with or without their schemas."""
