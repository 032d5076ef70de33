"""The long-running mirror process: lock, stream, which tables run, retries, table renames."""

from replicator.runner.scheduler import OnBatch, RunSummary, Scheduler

__all__ = ["OnBatch", "RunSummary", "Scheduler"]
