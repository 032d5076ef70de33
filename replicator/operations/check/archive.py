"""Check that Kafka continues the archive of its topics. Pure: from facts to results."""

from collections.abc import Mapping
from typing import Final

from replicator.config import Config
from replicator.model.common import counted
from replicator.operations.check.connector import mirrored_topics
from replicator.operations.check.result import CheckResult, fail, listing, ok, warn
from replicator.sources.archive import Manifest
from replicator.sources.archive.joints import LiveTopic, joined

_NAME: Final = "log: archive"


def check_archive(
    location: str, manifest: Manifest | None, topics: Mapping[str, LiveTopic], config: Config
) -> list[CheckResult]:
    """Check the archive in `log.archive`; `manifest` is None if there is none. `topics` have the log's prefix."""
    record = f"replicator record --to {location}"
    if manifest is None:
        return [warn(_NAME, f"there is no archive in {location}", f"run: {record}")]
    prefix = config.log.topic_prefix
    if manifest.topic_prefix != prefix:
        return [
            fail(
                _NAME,
                f"{location} contains events of {manifest.topic_prefix!r}, not of {prefix!r}",
                "name an archive of this mirror's topics",
            )
        ]
    is_mirrored = mirrored_topics(config)
    ours = {topic: live for topic, live in topics.items() if topic == prefix or is_mirrored(topic)}
    found = joined(ours, manifest)
    if not found.problems:
        return [ok(_NAME, f"{counted(manifest.events, 'event')} in {location}; Kafka continues it")]
    return [
        warn(
            _NAME,
            f"{location} is not continued by Kafka: "
            + listing(f"{topic}: {problem}" for topic, problem in sorted(found.problems.items())),
            "run record more often than Kafka deletes events. After a gap an archive cannot be continued: record "
            "into another folder, and name that one in log.archive",
        )
    ]
