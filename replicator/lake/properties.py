"""Names of properties of lake tables and of the `_ops` namespace. Persisted: they must not change."""

from typing import Final

CREATED_KEY: Final = "replicator.created-in"
"""Property of a table: the location at which the mirror created it. Tables of earlier versions lack it."""

PAUSED_KEY: Final = "replicator.paused."
"""Prefix of the properties that contain why a table is paused, by source table."""

RETRYING_KEY: Final = "replicator.retrying."
"""Prefix of the properties that contain why a table failed, if it is retried, by source table."""

LEFT_OUT_KEY: Final = "replicator.left-out."
"""Prefix of the properties that contain since when the configuration leaves out a mirrored table, by source table."""

REWIND_KEY: Final = "replicator.rewind."
"""Prefix of the properties that tell whose lost events earlier versions let the connector send again, by table."""

PURGING_KEY: Final = "replicator.purging."
"""Prefix of the properties that each contain a folder of a dropped table whose files must still be deleted."""
