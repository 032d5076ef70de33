"""One batch of one table: `order` has the steps in their order, the other rooms one step each."""

from replicator.batch.fetch import fetched
from replicator.batch.lake_names import has_left, is_half_renamed, rename, renamed_to
from replicator.batch.order import process, process_again
from replicator.batch.parts import has_news
from replicator.batch.work import Engine, Work

__all__ = [
    "Engine",
    "Work",
    "fetched",
    "has_left",
    "has_news",
    "is_half_renamed",
    "process",
    "process_again",
    "rename",
    "renamed_to",
]
