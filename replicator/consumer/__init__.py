"""Consume the changes of a table from the lake: its history, and then its live changes from exactly that point.

    from replicator.consumer import changes

    for batch in changes("shop.toml", "shop.orders", follow=True):
        ...

See docs/how-to/consume-changes.md. For Spark, see `replicator.consumer.spark`, which this package does not import.
"""

from replicator.consumer.batches import Batch, BatchKind, ColumnNotice, SchemaNotice
from replicator.consumer.cursor import Cursor
from replicator.consumer.feed import FeedOptions, changes

__all__ = ["Batch", "BatchKind", "ColumnNotice", "Cursor", "FeedOptions", "SchemaNotice", "changes"]
