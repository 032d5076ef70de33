"""Parse the table definitions of Debezium's schema-change topic.

They are the source of types for JSON events without schemas. Encodings are those of the connector template
(connectors/): adaptive microsecond times, binary as base64. Only the values in events show how decimals are encoded.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import Any, Final

from replicator.errors import DecodeError
from replicator.model.document import Document
from replicator.model.position import LAST_MS, MOST_POS, SourcePosition
from replicator.model.table import Column, TableId, TableSchema
from replicator.schema.ddl.keys import index_statements, key_change
from replicator.schema.ddl.partitions import partition_change, partition_statements
from replicator.schema.ddl.records import RecordStatements
from replicator.schema.ddl.rows import unlogged_changes
from replicator.schema.ddl.tables import Statement, column_moves, dropped_database, renamed_tables
from replicator.schema.history.versions import TableDefinition
from replicator.schema.types import mysql
from replicator.schema.types.native import with_labels
from replicator.schema.types.table import CHARS, DECIMALS, TEXTS, Declared

_NUMBERS: Final = frozenset({"int", "long", "float", "double", "decimal"})
_NUMBER: Final = re.compile(r"(?=.{1,400}$)[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d{1,3})?", re.IGNORECASE | re.ASCII)
"""A number as a column may have it; the least double has an exponent of three digits, or about 340 decimal digits."""
_DAY: Final = re.compile(r"\d{4}-\d\d-\d\d")
_TIME: Final = re.compile(r"(-?)(\d{1,3}):([0-5]\d):([0-5]\d)(?:\.(\d{1,6}))?")
_CLOCK: Final = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(\.\d+)?")
_WIDE: Final = Context(prec=3 * mysql.MOST_DIGITS)
"""The precision for decimals with all digits that MySQL has on both sides of the point, and more."""
_LONG: Final = (1 << 63) - 1
_MOST_TABLES: Final = 10_000
_LONGEST_ID: Final = 1024
"""Maximum length of a table id, characters: two names in two databases, with quotes."""
_REPLACEMENT: Final = "\ufffd"
"""What the connector reads for bytes that are not UTF-8."""
_NOW: Final = "1970-01-01 00:00:00"
"""The default that connectors write for CURRENT_TIMESTAMP and NOW(), as well as for this constant itself."""


def table_definitions(value: bytes) -> list[TableDefinition]:
    """Parse the definitions in a record of the schema-change topic, with or without an embedded schema.

    Raises:
        DecodeError: the record is not a schema change.
    """
    with _no_schema_change():
        record = Document.parse(value)
        if "schema" in record.fields and "payload" in record.fields:
            record = record.object("payload")
        return _definitions_of(record)


def definitions_of(record: Mapping[str, Any]) -> list[TableDefinition]:
    """Return the definitions in a schema change whose JSON is already parsed.

    Raises:
        DecodeError: the record is not a schema change.
    """
    with _no_schema_change():
        return _definitions_of(Document(record))


@contextmanager
def _no_schema_change() -> Iterator[None]:
    try:
        yield
    except DecodeError as error:
        raise DecodeError(f"not a schema-change event: {error.message}") from None


def _definitions_of(record: Document) -> list[TableDefinition]:
    source = record.object("source")
    position = SourcePosition(
        source.optional_text("file", mysql.LONGEST_NAME) or "",
        source.optional_number("pos", 0, MOST_POS) or 0,
        0,
        source.optional_number("server_id", 0, _LONG) or 0,
        source.optional_text("gtid"),
    )
    try:
        _ = position.order  # a file name without a number must fail here and not later
    except ValueError as error:
        raise DecodeError(str(error)) from None
    mark = str(source.get("snapshot") or "false").lower()
    snapshot = mark not in ("false", "incremental")
    ts_ms = source.optional_number("ts_ms", 0, LAST_MS) or 0
    of_record = RecordStatements(record.optional_text("ddl"))
    changes = record.objects("tableChanges", _MOST_TABLES)
    database = record.optional_text("databaseName", mysql.LONGEST_NAME) or ""
    unlogged = dict(unlogged_changes(of_record.all, database))
    base = TableDefinition(TableId(database, ""), position, ts_ms, None)
    if changes:
        defined = [d for c in changes for d in _definitions(c, replace(base, snapshot=snapshot), of_record)]
        found = [*_with_rows(defined, unlogged)]
    else:
        found = [*_of_statements(of_record.all, base, unlogged)]
    of_rows = [replace(base, table=t, unlogged=u, only_statement=True) for t, u in unlogged.items()]
    # Snapshots drop each database before they define its tables, which the source has not executed; only their records
    # lack the id of the server. Debezium 3.6 writes no other record about the tables of a database that is dropped.
    dropped = dropped_database(of_record.all)
    if dropped is not None and not changes and not snapshot and position.server_id:
        of_rows.append(replace(base, table=TableId(dropped, ""), whole_database=True))
    return [*found, *of_rows]


def _with_rows(
    definitions: Iterable[TableDefinition], unlogged: dict[TableId, str]
) -> Iterator[TableDefinition]:
    """Yield definitions with the statements that changed rows of their tables, which are removed from `unlogged`.

    Letter case is ignored, as on some servers.
    """
    folded: dict[str, list[TableId]] = {}
    for table in unlogged:
        folded.setdefault(str(table).casefold(), []).append(table)
    for d in definitions:
        names = [str(n).casefold() for n in (d.table, d.other_name) if n is not None and d.schema is not None]
        same = next((tables for name in names if (tables := folded.get(name))), None)
        yield d if same is None else replace(d, unlogged=unlogged.pop(same.pop(0)))


def _of_statements(
    statements: Sequence[Statement], base: TableDefinition, unlogged: dict[TableId, str]
) -> Iterator[TableDefinition]:
    """Yield what a record tells that defines no table; statements that it covers are removed from `unlogged`.

    In a record about an index, Debezium 3.6 defines no table unless the index is unique and new.
    """
    database = base.table.database
    for old, new in renamed_tables(statements, database):
        yield replace(base, table=old, other_name=new, passing=True)
    for table, key in index_statements(statements, database):
        yield replace(base, table=table, key_change=key, only_statement=True)
    for table, partitions in partition_statements(statements, database):
        text = unlogged.pop(table, None)
        yield replace(base, table=table, partitions=partitions, only_statement=True, unlogged=text)


def _definitions(
    change: Document, base: TableDefinition, of_record: RecordStatements
) -> list[TableDefinition]:
    """Return the definitions of one table change: the table's, and its old name's if it was renamed.

    Some connectors list both names, others only the new one.
    """
    kind, names = change.text("type"), table_ids(change.text("id", _LONGEST_ID))
    table, old = names[-1], names[0] if len(names) > 1 else of_record.renamed_from(names[-1])
    gone = replace(base, table=old or table)
    definition = change.optional_object("table")
    if kind == "DROP" or definition is None:
        return [gone] if old is None else [gone, replace(gone, table=table)]
    columns = definition.objects("columns", mysql.MOST_COLUMNS)
    columns.sort(key=lambda c: c.number("position", 0, _LONG))
    key = _key(
        definition.texts("primaryKeyColumnNames", mysql.MOST_COLUMNS), [c.text("name") for c in columns]
    )
    statements, computed = of_record.of(table), of_record.computed
    schema = TableSchema(tuple(_column(c, computed) for c in columns), key).without_reserved()
    mysql.check_columns(schema.columns)
    source_types = {c.name: _native(d) for c, d in zip(schema.columns, columns, strict=True)}
    moves = column_moves(statements, table) if kind == "ALTER" else None
    changed = replace(key_change(statements, table), created=kind == "CREATE")
    found = replace(
        base,
        table=table,
        schema=schema,
        moves=moves,
        source_types=source_types,
        other_name=old,
        key_change=changed,
        generated=of_record.generated,
        partitions=partition_change(statements, table),
        recollated=of_record.recollated,
    )
    return [found] if old is None else [replace(gone, other_name=table), found]


def _key(declared: Sequence[str], columns: Sequence[str]) -> tuple[str, ...]:
    """Return the key columns' names; a MODIFY with another letter case changes the column's name, but not the key's."""
    names = {name.casefold(): name for name in columns}
    return tuple(name if name in columns else names.get(name.casefold(), name) for name in declared)


def _native(column: Document) -> str:
    """Return the source type as one text, such as ``DECIMAL(12, 2)``; see `NativeType`."""
    labels = _labels(column)
    if labels:
        return with_labels(_type_name(column), map(mysql.label_meant, labels))
    numbers = [str(n) for n in (column.get("length"), column.get("scale")) if n is not None]
    name, *attributes = _type_name(column).split(" UNSIGNED")
    size = f"({', '.join(numbers)})" if numbers else ""
    charset = column.get("charsetName") if name in TEXTS else None
    return (
        f"{name}{size}{' UNSIGNED' + ' '.join(attributes) if attributes else ''}"
        f"{f' CHARACTER SET {charset}' if charset else ''}"
    )


def _labels(column: Document) -> list[str]:
    """Return the labels of an ENUM or SET, without their quotes; backslashes are kept as in the DDL."""
    return [_unquoted(label) for label in column.texts("enumValues", mysql.MOST_LABELS)]


def table_ids(text: str) -> list[TableId]:
    """Parse a table id such as ``"shop"."orders"``: the table, or old and new name of a renamed one.

    Debezium does not quote a name that begins or ends with a quote itself.

    Raises:
        DecodeError: the text is not a table id.
    """
    for comma in re.finditer(",", text):
        try:
            return [_one_id(text[: comma.start()]), _one_id(text[comma.end() :])]
        except DecodeError:
            continue
    return [_one_id(text)]


def _one_id(text: str) -> TableId:
    quoted = r'"((?:[^"]|"")*)"'
    if found := re.fullmatch(rf"{quoted}\.{quoted}", text, re.DOTALL):
        return TableId(*(part.replace('""', '"') for part in found.groups()))
    if found := re.fullmatch(rf'("[^.]*|.*")\.{quoted}', text, re.DOTALL):
        return TableId(found[1], found[2].replace('""', '"'))
    if found := re.fullmatch(rf'{quoted}\.(".*|.*")', text, re.DOTALL):
        return TableId(found[1].replace('""', '"'), found[2])
    raise DecodeError(f"not a table id: {text[:100]}")


def _type_name(column: Document) -> str:
    return column.text("typeName", mysql.LONGEST_NAME)


def _column(column: Document, computed: Collection[str]) -> Column:
    length, scale = (column.optional_number(name, 0, _LONG) for name in ("length", "scale"))
    charset = column.optional_text("charsetName", mysql.LONGEST_NAME)
    kind = mysql.declared(_type_name(column), length, scale, charset)
    lake_type, encoding = mysql.stored(kind)
    labels = _labels(column)
    fill, unknown = _fill(column, kind, lake_type.name, labels, computed)
    return Column(
        column.text("name", mysql.LONGEST_NAME),
        lake_type,
        encoding,
        bool(column.fields.get("optional", True)),
        fill,
        unknown,
        mysql.respelt_labels(labels),
        size=mysql.kept_size(kind),
    )


def _unquoted(label: str) -> str:
    """Return a label without its quotes; backslashes are kept as in the DDL."""
    if len(label) < 2 or label[0] != label[-1] or label[0] not in "'\"":
        return label
    return label[1:-1].replace(label[0] * 2, label[0])


def _fill(
    column: Document,
    kind: Declared,
    lake: str,
    labels: Sequence[str],
    computed: Collection[str],
) -> tuple[str | None, bool]:
    """Return the value that existing rows get if the column is added, and whether only the source knows it.

    The default is the text of a literal in the statement, without its quotes. Definitions do not show which columns
    are `computed`; these names are casefolded.
    """
    if column.get("generated") or column.get("autoIncremented") or kind.name == "SERIAL":
        # The source numbers existing rows.
        return None, True
    default, nullable = column.optional_text("defaultValueExpression"), column.fields.get("optional", True)
    if default is not None:
        constant = _constant(default, kind, lake, labels)
        return constant, constant is None
    without_text = column.get("hasDefaultValue") and not nullable
    if without_text or column.text("name").casefold() in computed:
        return None, True
    if nullable:
        return None, False
    implicit = _implicit(kind, lake, labels)
    return implicit, implicit is None


def _implicit(kind: Declared, lake: str, labels: Sequence[str]) -> str | None:
    """Return the value that MySQL writes to a NOT NULL column without a default; None if unknown."""
    if kind.name == "ENUM":
        return mysql.label_meant(labels[0]) if labels else None
    match lake:
        case "string" if kind.name == "JSON":
            return None
        case "string":
            return _wide("0", kind) if kind.name in DECIMALS else ""
        case "boolean":
            return "false"
        case _ if lake in _NUMBERS:
            return "0"
        case "binary" if kind.name.startswith("VAR") or kind.name.endswith("BLOB"):
            return ""
        case _:
            return None


def _constant(default: str, kind: Declared, lake: str, labels: Sequence[str]) -> str | None:
    """Return a default as text of the lake type; None if it is not a constant of the type."""
    match lake:
        case "string":
            return _text(default, kind, labels)
        case "date" if _DAY.fullmatch(default):
            return default
        case "timestamp" if _CLOCK.fullmatch(default) and default != _NOW:
            return default
        case "boolean":
            return {"1": "true", "TRUE": "true", "0": "false", "FALSE": "false"}.get(default.upper())
        case "long" if kind.name == "TIME":
            return _microseconds(default)
        case "int" if kind.name == "YEAR" and len(default) != 4:
            return None
        case _ if lake in _NUMBERS:
            number = {"TRUE": "1", "FALSE": "0"}.get(default.upper(), default)
            return number if _NUMBER.fullmatch(number) else None
        case _:
            return None


def _text(default: str, kind: Declared, labels: Sequence[str]) -> str | None:
    """Return a default as the source stores it in a column that is text in the lake; None if that is not known."""
    if kind.name in DECIMALS:
        return _wide(default, kind)
    if _REPLACEMENT in default:
        # The connector reads each statement as UTF-8, whatever the session's character set was.
        return None
    text = mysql.unescaped(default.replace("''", "'"))
    if kind.name in CHARS:
        return text.rstrip(" ")
    if not labels:
        return text
    meant = [mysql.label_meant(label) for label in labels]
    if kind.name == "ENUM":
        return _label(text.rstrip(" "), meant)
    found = {_label(member, meant) for member in text.rstrip(" ").split(",")} if text else set[str]()
    # The members are in the order of the definition, each once.
    return None if None in found else ",".join(label for label in meant if label in found)


def _label(text: str, labels: Sequence[str]) -> str | None:
    """Return the label that a text means; the source ignores letter case, unless it distinguishes two labels by it."""
    if text in labels:
        return text
    found = [label for label in labels if label.lower() == text.lower()]
    return found[0] if len(found) == 1 else None


def _wide(number: str, kind: Declared) -> str | None:
    """Return a decimal that the lake stores as text, with all fraction digits of its type."""
    if not _NUMBER.fullmatch(number) or (value := Decimal(number)).adjusted() >= mysql.MOST_DIGITS:
        return None
    # MySQL rounds half away from zero, and has no negative zero.
    rounded = value.quantize(Decimal(1).scaleb(-(kind.scale or 0)), ROUND_HALF_UP, _WIDE)
    return f"{rounded or abs(rounded):f}"


def _microseconds(text: str) -> str | None:
    found = _TIME.fullmatch(text)
    if found is None:
        return None
    sign, hours, minutes, seconds, fraction = found.groups()
    total = (int(hours) * 3600 + int(minutes) * 60 + int(seconds)) * 1_000_000
    return f"{sign}{total + int((fraction or '').ljust(6, '0'))}"
