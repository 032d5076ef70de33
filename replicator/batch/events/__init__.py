"""The events of a task: where they are computed, their statistics, redelivered ones, and the rows that they lead to."""
