"""`replicator run` that follows the archive in the current folder in place of Kafka; each session reads it again."""

from pathlib import Path
from typing import Any

from replicator.cli import main
from replicator.runner import process, reloads, sessions
from replicator.runner.stream import KafkaStream
from replicator.sources.archive.change_log import ArchiveChangeLog


class _Log(ArchiveChangeLog):
    def close(self) -> None:
        """Do nothing: there is no connection."""


def open_log(_config: Any, _log: Any) -> _Log:
    """Run in place of `open_kafka_log`."""
    return _Log(Path("archive"), "shop")


def follow(stream: KafkaStream, _goal: Any) -> None:
    """Run in place of `stream.follow`."""
    _, ends = stream.scheduler.check_log()
    stream.scheduler.advance(ends)
    stream.scheduler.stopping.wait()


if __name__ == "__main__":
    for module in (process, reloads):
        setattr(module, "open_kafka_log", open_log)  # noqa: B010 - a type checker does not accept an assignment
    setattr(sessions, "follow", follow)  # noqa: B010
    main(["run", "-c", "replicator.toml"])
