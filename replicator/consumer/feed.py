"""Give a consumer the history of a table and then its live changes, without gap and without overlap."""

import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

import numpy as np
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from replicator.config import Config, load
from replicator.consumer.batches import Batch, BatchKind, schema_notice, untold_steps
from replicator.consumer.cursor import Cursor, Point, Within, advanced
from replicator.consumer.files import (
    Coordinate,
    FileReader,
    FilesGone,
    LogFile,
    appended_files,
    change_column_of,
    live_files,
)
from replicator.consumer.heads import ChangelogHead, changelog_head
from replicator.consumer.image import image_rows, refuse_replaced_columns, start_with_image
from replicator.consumer.lake_tables import LakeTables
from replicator.consumer.ordered_rows import MOST_ROWS, OrderedRows, Piece, Window, coordinates_of, slices
from replicator.consumer.plan import AppendedRows, Part, RowsByOffset, next_parts, start_of_history
from replicator.errors import LakeUnavailable, Unsettled, UsageError
from replicator.lake.reading.reader import open_catalog

FROM_MIRROR: Final = "mirror"
FROM_CHANGELOG: Final = "changelog"
BATCH_ROWS: Final = 10_000
POLL_SECONDS: Final = 1.0
_SETTLE_SECONDS: Final = 60.0
_ATTEMPTS: Final = 5


@dataclass(frozen=True, slots=True)
class FeedOptions:
    """How a feed reads.

    Attributes:
        batch_rows: about how many rows a batch has; the rows of one event are never divided.
        sorted_rows: how many rows are sorted in memory at once; see `ordered_rows`.
        poll_seconds: how often the lake is asked for new commits.
        settle_seconds: how long a start with the mirror waits until mirror and changelog agree.
    """

    batch_rows: int = BATCH_ROWS
    sorted_rows: int = MOST_ROWS
    poll_seconds: float = POLL_SECONDS
    settle_seconds: float = _SETTLE_SECONDS


def changes(
    config: Config | Path | str,
    table: str,
    start: str | Cursor = FROM_MIRROR,
    *,
    follow: bool = False,
    stop: threading.Event | None = None,
    options: FeedOptions | None = None,
) -> Iterator[Batch]:
    """Yield the history of a table, then its changes from exactly that point.

    Nothing is missing and nothing comes twice, whatever the mirror and its maintenance do meanwhile. Kafka is not read.
    Each batch has the cursor after it. A consumer that stores the cursor together with its results, and starts with it
    again, gets each change once.

    Args:
        config: the configuration of the mirror, or its file.
        table: the source table, ``database.table``.
        start: ``"mirror"``: the rows of the mirror, then the changes after them; ``"changelog"``: all changes that the
            changelog has, from its beginning; or a cursor.
        follow: wait for further changes, until `stop` is set; otherwise the feed ends with the newest commit.
        stop: ends the feed after the current batch.
        options: how to read.

    Raises:
        UsageError: the table has no changelog, or the cursor is of another one.
        Unsettled: mirror and changelog do not agree within `options.settle_seconds`.
        CursorExpired: the consumer was away for too long, and the lake no longer tells which changes it lacks.
        ForeignChange: others changed rows of the changelog, or rolled it back.
        LakeUnavailable: the catalog or the storage failed.
    """
    settings = config if isinstance(config, Config) else load(Path(config))
    with open_catalog(settings.lake) as catalog:
        feed = Feed(catalog, settings, table, stop or threading.Event(), options or FeedOptions())
        cursor = start if isinstance(start, Cursor) else feed.start(start)
        yield from feed.batches(cursor, follow=follow)


@dataclass(slots=True)
class Feed:
    """The feed of one consumer."""

    catalog: Catalog
    config: Config
    source: str
    stop: threading.Event = field(default_factory=threading.Event)
    options: FeedOptions = field(default_factory=FeedOptions)
    tables: LakeTables = field(init=False)

    def __post_init__(self) -> None:
        self.tables = LakeTables(self.catalog, self.config.lake, self.source)

    def start(self, where: str) -> Cursor:
        """Return the cursor of a new consumer.

        Raises:
            UsageError, Unsettled, CursorExpired, LakeUnavailable: as `changes`.
        """
        if where == FROM_CHANGELOG:
            return start_of_history(self.source, changelog_head(self.tables.changelog()))
        if where != FROM_MIRROR:
            raise UsageError(
                f"cannot start from {where!r}", f"use {FROM_MIRROR!r} or {FROM_CHANGELOG!r}, or a cursor"
            )
        deadline = time.monotonic() + self.options.settle_seconds
        while True:
            try:
                return self._start_with_mirror()
            except Unsettled:
                if time.monotonic() >= deadline or self.stop.wait(self.options.poll_seconds):
                    raise

    def _start_with_mirror(self) -> Cursor:
        mirror = self.tables.mirror()
        if mirror is None:
            raise UsageError(
                f"{self.source} has no mirror in {self.tables.namespace}", "start from the changelog"
            )
        # The changelog is committed first, so what is loaded after the mirror has all of its changes.
        return start_with_image(self.source, mirror, changelog_head(self.tables.changelog()))

    def batches(self, cursor: Cursor, *, follow: bool = False) -> Iterator[Batch]:
        """Yield what follows a cursor; see `changes`."""
        for batch in self._until_stopped(self._image(cursor)):
            cursor = batch.cursor
            yield batch
        seen, gone = None, 0
        while not self.stop.is_set():
            table = self.tables.changelog(cursor.changelog)
            if table.metadata_location == seen:
                self.stop.wait(self.options.poll_seconds)
                continue
            try:
                for batch in self._until_stopped(self._to_head(table, replace(cursor, image=None))):
                    cursor, gone = batch.cursor, 0
                    yield batch
            except FilesGone as error:
                # What was deleted was replaced by newer files, which a new plan finds.
                gone += 1
                if gone >= _ATTEMPTS:
                    raise LakeUnavailable(
                        f"files are missing: {error}", "check the storage of the lake"
                    ) from error
                continue
            if not follow:
                return
            cursor, seen = cursor.at_end_of(changelog_head(table).point), table.metadata_location

    def _until_stopped(self, batches: Iterator[Batch]) -> Iterator[Batch]:
        for batch in batches:
            yield batch
            if self.stop.is_set():
                return

    def _image(self, cursor: Cursor) -> Iterator[Batch]:
        image = cursor.image
        if image is None:
            return
        mirror = self.tables.mirror()
        if mirror is None:
            raise UsageError(
                f"the mirror of {self.source} was dropped since the cursor was written", "start again"
            )
        refuse_replaced_columns(mirror, image, cursor.steps_at)
        done, held = image.rows, None
        for rows in image_rows(mirror, image.snapshot_id, done, self.options.batch_rows):
            if held is not None:
                yield held
            done += rows.num_rows
            held = Batch(BatchKind.ROWS, rows, replace(cursor, image=Within(image.snapshot_id, done)))
        if held is not None:
            # With the last rows, the snapshot of the mirror is needed no more.
            yield replace(held, cursor=replace(cursor, image=None))

    def _to_head(self, table: Table, cursor: Cursor) -> Iterator[Batch]:
        """Yield everything up to the state of a loaded changelog."""
        head = changelog_head(table)
        parts = next_parts(cursor, head)
        reading = Reading(table, head, self.options)
        if cursor.schema_id != head.schema.schema_id or untold_steps(table, cursor.steps_at):
            notice = reading.notice(cursor)
            cursor = notice.cursor
            yield notice
        # A batch is yielded when it is known whether it is the last one of its part: then its cursor is simpler.
        held: Batch | None = None
        for part in parts:
            for batch in reading.batches(part, cursor):
                if held is not None:
                    yield held
                held, cursor = batch, batch.cursor
            cursor = reading.end(part, cursor)
            held = None if held is None else replace(held, cursor=cursor)
        if held is not None:
            yield replace(held, cursor=cursor.at_end_of(head.point))


@dataclass(frozen=True, slots=True)
class Reading:
    """Reads parts of a loaded changelog."""

    table: Table
    head: ChangelogHead
    options: FeedOptions

    @property
    def change(self) -> str:
        """The name of the struct column."""
        return change_column_of(self.head.schema)

    def notice(self, cursor: Cursor) -> Batch:
        """Return the notice of the columns."""
        found, steps_at = schema_notice(self.table, self.head.schema, self.change, cursor.steps_at)
        rows = FileReader.of(self.table, self.head.schema).arrow_schema.empty_table()
        after = replace(cursor, schema_id=self.head.schema.schema_id, steps_at=steps_at)
        return Batch(BatchKind.SCHEMA, rows, after, self.change, found)

    def batches(self, part: Part, cursor: Cursor) -> Iterator[Batch]:
        """Yield the rows of a part.

        Raises:
            FilesGone: files of it were deleted meanwhile.
        """
        if isinstance(part, RowsByOffset):
            yield from self._by_offset(part, cursor)
        else:
            yield from self._appended(part, cursor)

    def end(self, part: Part, cursor: Cursor) -> Cursor:
        """Return the cursor after a part."""
        if isinstance(part, RowsByOffset):
            return cursor.at_end_of(part.point)
        snapshot = part.snapshot
        reached = replace(
            cursor.at,
            snapshot_id=snapshot.snapshot_id,
            sequence_number=snapshot.sequence_number,
            commit=snapshot.commit or cursor.at.commit,
            offsets=cursor.at.offsets,
        )
        return cursor.at_end_of(reached)

    def _by_offset(self, part: RowsByOffset, cursor: Cursor) -> Iterator[Batch]:
        if part.point.snapshot_id is None:
            return
        snapshot_id, progress = part.point.snapshot_id, ScanProgress(cursor.at)
        left, files = part.skip, live_files(self.table, snapshot_id)
        for piece in self._pieces(files, Window(part.after), 0):
            progress = progress.after(piece, self.change, part.point)
            rows, left = piece.rows.slice(left), max(0, left - piece.rows.num_rows)
            if rows.num_rows:
                within = Within(snapshot_id, progress.divided_rows) if progress.divided_rows else None
                after = replace(cursor, at=progress.at, scan=part.point, within=within)
                yield Batch(BatchKind.CHANGES, rows, after, self.change)

    def _appended(self, part: AppendedRows, cursor: Cursor) -> Iterator[Batch]:
        snapshot_id, done, at = part.snapshot.snapshot_id, part.skip, cursor.at
        for piece in self._pieces(appended_files(self.table, snapshot_id), Window(), part.skip):
            done += piece.rows.num_rows
            at = advanced_by(at, piece, self.change, self.head.point)
            after = replace(cursor, at=at, within=Within(snapshot_id, done))
            yield Batch(BatchKind.CHANGES, piece.rows, after, self.change)

    def _pieces(self, files: Sequence[LogFile], window: Window, skip: int) -> Iterator[Piece]:
        for piece in self._ordered(window).of(files):
            rest, skip = piece.rows.slice(skip), max(0, skip - piece.rows.num_rows)
            yield from slices(replace(piece, rows=rest), self.change, self.options.batch_rows)

    def _ordered(self, window: Window) -> OrderedRows:
        return OrderedRows(FileReader.of(self.table, self.head.schema), window, self.options.sorted_rows)


@dataclass(frozen=True, slots=True)
class ScanProgress:
    """How much of a state was delivered in the order of offsets.

    Attributes:
        at: the offsets before which everything was delivered.
        divided: the coordinate of which a part was delivered; it is `at` in its partition.
        divided_rows: how many rows of it were delivered.
    """

    at: Point
    divided: Coordinate | None = None
    divided_rows: int = 0

    def after(self, piece: Piece, change: str, topics: Point) -> "ScanProgress":
        """Return the progress after a piece."""
        at = self.at
        partitions, offsets = coordinates_of(piece.rows, change)
        coordinate = None if piece.whole else (int(partitions[0]), int(offsets[0]))
        if self.divided is not None and self.divided != coordinate:
            partition, offset = self.divided
            at = replace(at, offsets=advanced(at.offsets, {partition: offset + 1}, topics.offsets))
        at = advanced_by(at, piece, change, topics)
        before = self.divided_rows if self.divided == coordinate else 0
        return ScanProgress(at, coordinate, 0 if coordinate is None else before + piece.rows.num_rows)


def advanced_by(at: Point, piece: Piece, change: str, topics: Point) -> Point:
    """Return the state after a piece; of a divided coordinate, only the offsets before it count."""
    partitions, offsets = coordinates_of(piece.rows, change)
    reached = {int(p): int(offsets[partitions == p].max()) + int(piece.whole) for p in np.unique(partitions)}
    return replace(at, offsets=advanced(at.offsets, reached, topics.offsets))
