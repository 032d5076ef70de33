"""Import binary log files: scan them, serve them to Debezium, and record its events."""

import json
import shutil
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Final

from replicator.config import Config, KafkaLog
from replicator.decode.json.parser import JsonParser
from replicator.errors import BinlogError, UsageError
from replicator.locks import FileLock, LockHeld
from replicator.model.common import ShowProgress, has_wildcard, matches
from replicator.model.events import RawRecord
from replicator.model.table import TableId
from replicator.operations.binlog.checks import EventOrder, SkippedStatements
from replicator.operations.binlog.definitions import Definitions, from_file, without_file
from replicator.operations.binlog.scratch import Scratch, ScratchFolder, scratch_config, topic_prefix
from replicator.operations.record import RecordProgress, RecordTimes, RewrittenTopics, record
from replicator.operations.record_events import events_of
from replicator.sources.archive.format import PartitionKey
from replicator.sources.archive.origin import Origin, save_origin
from replicator.sources.archive.pending import Records
from replicator.sources.archive.reader import find_manifest
from replicator.sources.archive.storage import open_storage
from replicator.sources.archive.writer import MAX_BYTES
from replicator.sources.binlog.scan import BinlogFile, Scan, check_sequence, scan, total_bytes
from replicator.sources.connector.settings import kafka_log
from replicator.sources.kafka.admin import PATIENT_S, KafkaAdmin
from replicator.sources.kafka.log import KafkaChangeLog

_REFRESH_S: Final = 1.0
"""How often topics are looked for that Debezium made since."""


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


@dataclass(frozen=True, slots=True)
class Imported:
    """The result of an import.

    Attributes:
        files: the files, in order.
        events: number of events that were appended to the archive.
        complete: whether the archive has all events of the files.
    """

    files: tuple[BinlogFile, ...]
    events: int
    complete: bool

    @property
    def transactions(self) -> int:
        """Return the number of transactions in the files."""
        return sum(file.gtids + file.anonymous for file in self.files)


def import_binlog(
    config: Config,
    request: ImportRequest,
    *,
    on_progress: ShowProgress = lambda *_: None,
    stop: threading.Event | None = None,
) -> Imported:
    """Append the events of binary log files to the archive at `request.to`.

    The same files always give the same events at the same offsets. So an import that was interrupted is repeated, and
    one with more files at the end continues the archive. `on_progress` is called with the phase, and how much is done
    and in all: bytes of the files, or events while recording.

    Raises:
        BinlogError: the files are damaged, incomplete, encrypted, or not in sequence; or tables lack a definition.
        ArchiveError: the archive has events of another origin, or cannot be written.
        SourceError: the source's files or definitions cannot be read.
        StackError: the servers that the import needs do not start.
        UsageError: another import of this mirror is running.
    """
    stop = stop or threading.Event()
    folder = ScratchFolder(config.mirror.state_dir.absolute() / "binlog-import")
    with ExitStack() as held:
        folder.path.parent.mkdir(parents=True, exist_ok=True)
        try:
            held.enter_context(FileLock(folder.path.with_name("binlog-import.lock"), wait=False))
        except LockHeld as error:
            raise UsageError("another import of this mirror is running", "wait for its end") from error
        Scratch.remove_folder(folder)
        return _Import(config, request, folder, on_progress, stop).run()


class _Import:
    def __init__(
        self,
        config: Config,
        request: ImportRequest,
        folder: ScratchFolder,
        on_progress: ShowProgress,
        stop: threading.Event,
    ) -> None:
        self._config = config
        self._request = request
        self._folder = folder
        self._on_progress = on_progress
        self._stop = stop
        self._events = 0

    def run(self) -> Imported:
        try:
            return self._run()
        finally:
            shutil.rmtree(self._folder.path, ignore_errors=True)

    def _run(self) -> Imported:
        paths = self._fetch() if self._request.from_server else self._request.files
        if self._stop.is_set():
            return Imported((), 0, complete=False)
        scanned = self._scan(paths)
        definitions = self._definitions(scanned)
        origin = _origin(self._config, scanned, definitions)
        archive = open_storage(self._request.to, self._config.lake.catalog_options)
        save_origin(archive, origin)
        is_new = find_manifest(archive) is None
        self._on_progress("starting servers", 0, 0)
        with Scratch(self._folder, scanned.files, self._request.mysql) as scratch:
            scratch.define(definitions)
            compressed = any(file.compressed for file in scanned.files)
            own = scratch_config(self._config, scratch.endpoints, compressed=compressed)
            scratch.start_connector(own)
            schema_topic = topic_prefix(self._config)
            order = EventOrder(scanned.files, schema_topic, JsonParser(own.log.flattened).sources)
            skipped = SkippedStatements(schema_topic, self._changed(scanned))

            def check(partition: PartitionKey, records: Records) -> None:
                order.check(partition, records)
                if partition[0] == schema_topic:
                    for event in events_of(partition, records):
                        skipped.check(event)

            # Debezium writes the same events again, from the first file on, into the topics of another broker.
            topics = RewrittenTopics(check, from_beginning=not is_new)
            try:
                complete = self._read(scratch, own, scanned.files, topics)
            except BinlogError:
                # A statement that was skipped explains it better.
                for change in _schema_changes(own):
                    skipped.check(change)
                raise
            if complete:
                self._record(own, topics)
        return Imported(scanned.files, self._events, complete=complete and not self._stop.is_set())

    def _read(
        self, scratch: Scratch, own: Config, files: Sequence[BinlogFile], topics: RewrittenTopics
    ) -> bool:
        """Wait until Debezium has read all files. Return false if the import was stopped before."""
        report = self._reading(files)
        with self._recording_meanwhile(own, topics) as has_ended:
            for at in scratch.positions(own):
                if self._stop.is_set() or has_ended():
                    return False
                if at is not None:
                    report(at.file, at.pos)
        return True

    @contextmanager
    def _recording_meanwhile(self, own: Config, topics: RewrittenTopics) -> Iterator[Callable[[], bool]]:
        """Append events while Debezium reads, in a thread; yield whether that has ended. Its error is raised.

        An archive that is continued has events that this broker does not have yet: nothing is appended then.
        """
        if topics.from_beginning:
            yield lambda: False
            return
        ended = threading.Event()
        with ThreadPoolExecutor(1, "import-record") as pool:
            recording = pool.submit(self._record, own, topics, until=ended)
            try:
                yield recording.done
            finally:
                ended.set()
                recording.result()

    def _record(self, own: Config, topics: RewrittenTopics, until: threading.Event | None = None) -> None:
        """Append the events that the broker has and the archive lacks, or also later ones `until` an event is set."""
        done = record(
            own,
            self._request.to,
            until_caught_up=until is None,
            on_progress=self._recording if until is None else None,
            stop=until or self._stop,
            times=RecordTimes(segment=self._request.segment_seconds, refresh=_REFRESH_S),
            segment_bytes=self._request.segment_bytes,
            rewritten=topics,
        )
        self._events += done.events

    def _fetch(self) -> tuple[Path, ...]:
        # SQLAlchemy takes a second to import.
        from replicator.sources.binlog.download import download  # noqa: PLC0415

        def report(done: int, total: int) -> None:
            self._on_progress("fetching", done, total)

        return download(self._config.source, self._folder.binlogs, report, self._stop.is_set)

    def _scan(self, paths: Sequence[Path]) -> Scan:
        total, done = total_bytes(paths), 0

        def report(read: int) -> None:
            nonlocal done
            done += read
            self._on_progress("checking", done, total)

        scanned = scan(paths, report)
        check_sequence(scanned.files)
        if partial := sorted(table for table in scanned.partial if self._includes(table)):
            raise BinlogError(
                f"changes of {partial[0]} were made with binlog_row_value_options = PARTIAL_JSON, which Debezium skips",
                f"exclude {partial[0]} from source.tables, and mirror it from the server",
            )
        return scanned

    def _includes(self, table: TableId) -> bool:
        # As the connector decides it: it reads helper tables too.
        source = self._config.source
        return matches(str(table), source.tables) and not matches(str(table), source.exclude)

    def _changed(self, scanned: Scan) -> list[TableId]:
        """Return the tables that are imported and have events."""
        changed = (item for item in scanned.items if isinstance(item, TableId))
        return [table for table in changed if self._includes(table)]

    def _definitions(self, scanned: Scan) -> Definitions:
        if (file := self._request.definitions) is not None:
            return from_file(file, _default_database(self._config))
        return without_file(scanned, self._includes)

    def _reading(self, files: Sequence[BinlogFile]) -> Callable[[str, int], None]:
        starts: dict[str, int] = {}
        total = 0
        for file in files:
            starts[file.name] = total
            total += file.size

        def report(name: str, at: int) -> None:
            self._on_progress("reading", starts.get(name, 0) + at, total)

        return report

    def _recording(self, state: RecordProgress) -> None:
        self._on_progress("recording", state.events, state.events + state.remaining)


def _schema_changes(own: Config) -> Iterator[RawRecord]:
    log = kafka_log(own)
    return KafkaChangeLog(log, KafkaAdmin(log, timeout_s=PATIENT_S)).schema_changes()


def _origin(config: Config, scanned: Scan, definitions: Definitions) -> Origin:
    first = scanned.files[0]
    log = config.log
    options = (log.schemas, log.partitions, log.transactions) if isinstance(log, KafkaLog) else ()
    keys = [(table.name, table.key) for table in config.tables if table.key]
    deciding = [
        *(topic_prefix(config), config.source.tables, config.source.exclude, keys),
        *(log.flattened, options, definitions.fingerprint()),
    ]
    settings = sha256(json.dumps(deciding).encode()).hexdigest()
    return Origin(first.name, first.created, first.server_id, settings)


def _default_database(config: Config) -> str | None:
    """Return the database of definitions that name none: that of the source's address, or of all patterns."""
    if config.source.url is not None and config.source.url.database:
        return config.source.url.database
    databases = {pattern.partition(".")[0] for pattern in config.source.tables}
    return None if len(databases) > 1 or has_wildcard(name := databases.pop()) else name
