"""A log whose topics can be deleted and recreated."""

import shutil

from replicator.sources.archive.change_log import ArchiveChangeLog
from tests.support.lake_harness import LakeHarness


def with_topic_id(lake: LakeHarness) -> list[str]:
    """Let the log of a lake grow, and return a list whose only item is the id of all of its topics."""
    found = ["first"]

    class GrowingLog(ArchiveChangeLog):
        grows = True

        def topic_id(self, topic: str) -> str:  # noqa: ARG002
            return found[0]

    lake.open_log = GrowingLog
    return found


def recreate_topic(lake: LakeHarness, topic_id: list[str]) -> None:
    """Delete all events; those that are written next are of other topics with the same names."""
    shutil.rmtree(lake.folder / "archive")
    topic_id[0] = "second"
