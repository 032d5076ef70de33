"""One mirror process: `mirror` goes through the log batch by batch; `tables` and `renames` tell which may go on."""

from replicator.mirror.mirror import Mirror, OnBatch, RunSummary

__all__ = ["Mirror", "OnBatch", "RunSummary"]
