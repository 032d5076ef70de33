"""What is decided before the events of a task are decoded: its size, its segments, and what comes between them."""
