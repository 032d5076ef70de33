"""Applies one batch of one table. `apply_task` defines the order of the steps; each step has a module."""

from replicator.batch.apply import apply_task, replay_task
from replicator.batch.context import MirrorContext, known_names
from replicator.batch.plan.parts import begun_ends, first_part, first_ranges
from replicator.batch.plan.prefetch import divided, fetched_late, prefetch_plans
from replicator.batch.plan.renames import former_names, has_left, is_half_renamed, rename, renamed_to
from replicator.batch.plan.segments import has_news
from replicator.batch.plan.tags import has_all_before
from replicator.batch.state.tagging import PendingTag
from replicator.batch.steps.tag import tag_table
from replicator.batch.task import TableAwaits, TableTask

__all__ = [
    "MirrorContext",
    "PendingTag",
    "TableAwaits",
    "TableTask",
    "apply_task",
    "begun_ends",
    "divided",
    "fetched_late",
    "first_part",
    "first_ranges",
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
