"""`[[log_table]]`: a topic whose events are no changes of tables, and the table to which they are appended."""

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Annotated, Any, Final, Literal, Self

from pydantic import Field, PlainValidator, model_validator

from replicator.config.sections import ArchiveLog, KafkaLog, SectionError, TableSectionError
from replicator.config.values import Duration, Section
from replicator.model.shapes import parse_shape, unfit_name
from replicator.model.types import LakeType

LogFormat = Literal["json", "avro", "csv", "text"]
LogPolicy = Literal["evolve", "freeze", "discard", "quarantine"]
RecordColumn = Literal["key", "headers", "partition", "offset", "timestamp"]

RECORD_COLUMNS: Final[dict[RecordColumn, tuple[str, LakeType]]] = {
    "partition": ("kafka_partition", LakeType("int")),
    "offset": ("kafka_offset", LakeType("long")),
    "timestamp": ("kafka_timestamp", LakeType("timestamptz")),
    "key": ("kafka_key", LakeType("binary")),
    "headers": ("kafka_headers", LakeType("string")),
}
"""What a record has besides its value → the column of it, and its type."""

TEXT_COLUMN: Final = "line"
"""The column of events in the format `text`."""

_TABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\.[A-Za-z_][A-Za-z0-9_]*")
_TIMES: Final = ("timestamptz", "timestamp", "date")
_DAY_S: Final = 86_400.0


def _table(value: object) -> str:
    if not isinstance(value, str) or not _TABLE.fullmatch(value):
        raise ValueError('must be "NAMESPACE.TABLE" of the lake, as in "logs.clicks"')
    return value


class LogTableConfig(Section):
    """`[[log_table]]`: a topic that becomes a table to which its events are appended.

    Attributes:
        columns: the columns that are known before; further ones are learnt from the events if `schema` is "evolve".
        schema_policy: what happens with a field that is no column: "evolve" adds a column, "freeze" pauses the table,
            "discard" leaves the field out, "quarantine" sets the event apart. None: see `policy`.
        nested: whether a nested record becomes a struct or JSON text.
        delimiter: what separates the fields of `format = "csv"`.
        event_time: the column with the time of an event; the watermark of the table is the latest one.
        partition: whether the table is partitioned by the hour or the day of `event_time`.
        record: what else of a record becomes a column.
        retention: seconds; partitions that are older are deleted as a whole.
        on_gap: what happens if Kafka has deleted events that the table lacks.
    """

    topic: Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{1,249}$")]
    table: Annotated[str, PlainValidator(_table)]
    format: LogFormat = "json"
    columns: Annotated[Mapping[str, Any], PlainValidator(parse_shape)] = {}
    schema_policy: Annotated[LogPolicy | None, Field(alias="schema")] = None
    nested: Literal["struct", "text"] = "struct"
    delimiter: Annotated[str, Field(pattern=r"^[^\r\n\"]$")] = ","
    event_time: str | None = None
    partition: Literal["hour", "day"] | None = None
    record: tuple[RecordColumn, ...] = ("partition", "offset", "timestamp")
    retention: Duration | None = None
    on_gap: Literal["pause", "continue"] = "pause"

    @property
    def policy(self) -> LogPolicy:
        """What happens with a field that is no column: by default, what is not declared is left out."""
        return self.schema_policy or ("discard" if self.columns else "evolve")

    @property
    def namespace(self) -> str:
        """The namespace of the table."""
        return self.table.partition(".")[0]

    @property
    def name(self) -> str:
        """The name of the table in its namespace."""
        return self.table.partition(".")[2]

    @property
    def record_columns(self) -> dict[str, LakeType]:
        """The columns of what a record has besides its value."""
        return dict(RECORD_COLUMNS[part] for part in self.record)

    @model_validator(mode="after")
    def _fits(self) -> Self:
        self._check_format()
        taken = self.record_columns
        for name in self.columns:
            if name in taken or unfit_name(name, taken) is not None:
                raise ValueError(f'columns has "{name}", which record names too')
        if not (self.record or self.columns or self.format == "text"):
            raise ValueError(
                "record is empty, and without columns a new table would have none; name one of them"
            )
        self._check_time()
        return self

    def _check_format(self) -> None:
        given: Any = self.model_fields_set
        if self.format == "text" and ("columns" in given or "schema_policy" in given):
            raise ValueError(
                f'with format = "text", a table has the column "{TEXT_COLUMN}"; remove columns and schema'
            )
        if self.format == "csv":
            if not self.columns:
                raise ValueError('format = "csv" needs columns: the fields have no names')
            if "schema_policy" in given:
                raise ValueError(
                    'schema has no effect with format = "csv": the fields have no names; remove it'
                )
            if any(not isinstance(kind, LakeType) for kind in self.columns.values()):
                raise ValueError('with format = "csv", no column has nested fields')
        elif self.delimiter != ",":
            raise ValueError('delimiter has no effect without format = "csv"; remove it')
        if "nested" in given and self.format not in ("json", "avro"):
            raise ValueError(f'nested has no effect with format = "{self.format}"; remove it')

    def _check_time(self) -> None:
        if self.event_time is None:
            for key in ("partition", "retention"):
                if getattr(self, key) is not None:
                    raise ValueError(f"{key} needs event_time, the column with the time of an event")
            return
        kind = self.record_columns.get(self.event_time) or self.columns.get(self.event_time)
        if kind is None and not self.learns:
            raise ValueError(f'event_time is "{self.event_time}", which is not among the columns')
        if kind is not None and (not isinstance(kind, LakeType) or kind.name not in _TIMES):
            raise ValueError(
                f'event_time is "{self.event_time}", which is {kind}; it must be {" or ".join(_TIMES)}'
            )
        if kind is not None and str(kind) == "date" and self.partition == "hour":
            raise ValueError('a date has no hours; write partition = "day"')
        if self.retention is not None and self.partition is None:
            raise ValueError('retention deletes whole partitions; set partition = "day" or "hour"')
        if self.retention is not None and self.partition == "day" and self.retention < _DAY_S:
            raise ValueError(
                'retention is shorter than a partition; write partition = "hour", or "1 day" or more'
            )

    @property
    def learns(self) -> bool:
        """Whether columns are learnt from the events."""
        return self.policy == "evolve" and self.format in ("json", "avro")


def check_log_tables(
    tables: Sequence[LogTableConfig],
    log: KafkaLog | ArchiveLog,
    is_mirrored: Callable[[str], bool],
    namespaces: Collection[str],
) -> None:
    """Check that each log table has a table and a topic of its own, which are no mirror's.

    Raises:
        SectionError: it has not, or the registry has no use.
    """
    is_needed = any(settings.format == "avro" for settings in tables)
    if isinstance(log, KafkaLog) and log.format == "json" and log.registry_url is not None and not is_needed:
        raise SectionError(
            'registry_url has no effect with format = "json" and without log tables in Avro; remove it',
            "log",
            "registry_url",
        )
    for index, settings in enumerate(tables):
        if not isinstance(log, KafkaLog):
            raise _wrong('needs log.kind = "kafka": an archive has only changes of tables', index, "topic")
        if settings.table in [other.table for other in tables[:index]]:
            raise _wrong(f'"{settings.table}" appears twice; keep one', index, "table")
        if settings.namespace in namespaces:
            raise _wrong(
                f'"{settings.namespace}" is a namespace of the mirror; choose another, as in "logs.{settings.name}"',
                index,
                "table",
            )
        if is_mirrored(settings.table):
            raise _wrong(
                f'"{settings.table}" is also a source table that is mirrored; choose another', index, "table"
            )
        if settings.format == "avro" and log.registry_url is None:
            raise _wrong(
                'format = "avro" needs log.registry_url: events only name their schema', index, "format"
            )
        start = f"{log.topic_prefix}."
        if settings.topic == log.topic_prefix or (
            settings.topic.startswith(start) and is_mirrored(settings.topic.removeprefix(start))
        ):
            raise _wrong(
                f'"{settings.topic}" is a topic of the mirror, whose events are changes', index, "topic"
            )


def _wrong(message: str, index: int, key: str) -> TableSectionError:
    return TableSectionError(message, index, key, "log_table")
