"""Read the records of tags from the properties of the `_ops` namespace."""

from collections.abc import Mapping

from replicator.errors import LakeUnavailable
from replicator.model.tags import TagRecord, recorded_tags


def tags_in(properties: Mapping[str, str]) -> list[TagRecord]:
    """Return the tags that properties of the `_ops` namespace describe, oldest first.

    Raises:
        LakeUnavailable: a newer version of the engine wrote one.
    """
    try:
        return recorded_tags(properties)
    except (ValueError, KeyError) as error:
        raise LakeUnavailable(str(error), "use the version of replicator that wrote it") from error
