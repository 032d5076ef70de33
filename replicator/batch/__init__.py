"""Applies one batch of one table. `apply_task` defines the order of the steps; each step has a module."""

from replicator.batch.apply_task import apply_task, replay_task
from replicator.batch.context import MirrorContext, TableTask
from replicator.batch.exchange import (
    Exchange,
    ExchangeAwaited,
    exchanges,
    follow_exchange,
    is_begun,
    next_exchange,
)
from replicator.batch.prefetch import prefetch_records
from replicator.batch.rename_tables import has_left, is_half_renamed, rename, renamed_to
from replicator.batch.schema_boundaries import has_news

__all__ = [
    "Exchange",
    "ExchangeAwaited",
    "MirrorContext",
    "TableTask",
    "apply_task",
    "exchanges",
    "follow_exchange",
    "has_left",
    "has_news",
    "is_begun",
    "is_half_renamed",
    "next_exchange",
    "prefetch_records",
    "rename",
    "renamed_to",
    "replay_task",
]
