"""What an import is asked to do."""

from dataclasses import dataclass
from pathlib import Path

from replicator.errors import UsageError
from replicator.operations.record import RecordTimes
from replicator.sources.archive.writer import MAX_BYTES


@dataclass(frozen=True, slots=True)
class ImportRequest:
    """The files to import, and how their tables were defined before the first one.

    Attributes:
        to: the archive: a folder, or a URL.
        files: the binary log files, in order; empty if the source is asked for its files.
        from_server: whether to fetch all files that the source has.
        segment_bytes, segment_seconds: a segment of the archive is completed at this size, and after this time.
        mysql: the MySQL server that serves the files: a version or a path; if empty, any available one.
        definitions: a file with CREATE TABLE statements, as `mysqldump --no-data` writes it; None if there is none.
    """

    to: Path | str
    files: tuple[Path, ...] = ()
    from_server: bool = False
    definitions: Path | None = None
    mysql: str = ""
    segment_bytes: int = MAX_BYTES
    segment_seconds: float = RecordTimes().segment

    def __post_init__(self) -> None:
        if self.from_server and self.files:
            raise UsageError("--from-server fetches the files itself", "omit --binlog and the files")
        if not self.from_server and not self.files:
            raise UsageError(
                "no binary log file was given", "replicator record --to DIR --binlog mysql-bin.000001 …"
            )
