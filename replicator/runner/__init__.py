"""The long-running mirror process: lock, signals, stream, scheduler, retries, table states and renames."""
