"""Applies one batch of one table. `apply_task` defines the order of the steps; each step has a module."""

from replicator.batch.apply_task import apply_task, replay_task, tag_table
from replicator.batch.awaiting import TableAwaits
from replicator.batch.context import MirrorContext, PendingTag, TableTask, known_names
from replicator.batch.prefetch import divided, prefetch_plans
from replicator.batch.rename_tables import former_names, has_left, is_half_renamed, rename, renamed_to
from replicator.batch.schema_boundaries import has_news
from replicator.batch.tag_boundary import has_all_before

__all__ = [
    "MirrorContext",
    "PendingTag",
    "TableAwaits",
    "TableTask",
    "apply_task",
    "divided",
    "former_names",
    "has_all_before",
    "has_left",
    "has_news",
    "is_half_renamed",
    "known_names",
    "prefetch_plans",
    "rename",
    "renamed_to",
    "replay_task",
    "tag_table",
]
