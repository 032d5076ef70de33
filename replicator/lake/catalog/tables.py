"""Load, create and change lake tables with Iceberg's Java API.

The Java API is used because one atomic commit can do what needs several SQL statements. Every method that accesses the
catalog may raise LakeUnavailable.
"""

import json
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, Final

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.sql import SparkSession

from replicator.config import CATALOG_NAME
from replicator.errors import CommitConflict, LakeUnavailable
from replicator.lake.catalog.applied_deletes import AppliedDeletes
from replicator.lake.catalog.java import JavaClasses, StaticMembers, classes_of
from replicator.lake.catalog.metadata import (
    DEFAULT_FORMAT,
    ENGINE_PROPERTIES,
    FORMAT_KEY,
    has_deletion_vectors,
)
from replicator.lake.properties import CREATED_KEY
from replicator.lake.reading.folders import local_path
from replicator.model.commit_marker import MARKER_KEY, CommitMarker
from replicator.model.common import quoted
from replicator.model.recorded import names_in, record_in
from replicator.model.snapshot import Truncate
from replicator.model.types import LakeType
from replicator.schema.evolution.changes import (
    KEPT_KEY,
    PENDING_CLEAR_KEY,
    PENDING_FILLS_KEY,
    SCHEMA_KEY,
    UNFILLED_KEY,
    KeepRows,
    SchemaState,
    fills_from_json,
    kept_from_json,
)
from replicator.schema.evolution.own_columns import COLUMNS_KEY, OwnColumns, fields_of

_ICEBERG_ERRORS: Final = "org.apache.iceberg.exceptions."
_PROBE_BYTES: Final = 64 << 10
"""A full disk may still take an empty file."""


def java_class(error: Py4JJavaError) -> str:
    """Return the class name of the Java exception."""
    return str(error.java_exception.getClass().getName())


@contextmanager
def lake_errors(doing: str) -> Iterator[None]:
    """Translate Java exceptions to the engine's errors; `doing` begins the message.

    Raises:
        CommitConflict: another writer has committed.
        LakeUnavailable: any other exception.
    """
    try:
        yield
    except Py4JJavaError as error:
        name = java_class(error)
        reason = f"{doing}: {str(error.java_exception.getMessage()).splitlines()[0]}"
        if name == _ICEBERG_ERRORS + "CommitFailedException":
            raise CommitConflict(reason) from error
        raise LakeUnavailable(
            reason, "check [lake] in the configuration, and that the catalog is running"
        ) from error
    except Py4JError as error:
        raise LakeUnavailable(f"{doing}: the JVM does not respond ({error})") from error


@dataclass(frozen=True)
class LakeTable:
    """A table in the state in which it was loaded. `java` is an org.apache.iceberg.Table.

    What is read of the state is kept, because each call of Java takes time, until `forget`.
    """

    namespace: str
    name: str
    java: Any
    classes: JavaClasses

    def refresh(self) -> None:
        """Load the newest state."""
        self.java.refresh()
        self.forget()

    def forget(self) -> None:
        """Forget the state that was read: a commit through `java` has changed it."""
        for name in _STATE & self.__dict__.keys():
            del self.__dict__[name]

    @property
    def sql_name(self) -> str:
        return quoted(CATALOG_NAME, self.namespace, self.name)

    @cached_property
    def uuid(self) -> str:
        """The id that Iceberg gave the table when it was created."""
        return str(self.java.uuid().toString())

    @cached_property
    def snapshot_id(self) -> int | None:
        """The id of the current snapshot; None if nothing was ever committed."""
        snapshot = self.java.currentSnapshot()
        return None if snapshot is None else int(snapshot.snapshotId())

    @cached_property
    def is_local(self) -> bool:
        """Whether the table's files are on a file system of this machine, as far as its address tells."""
        return local_path(str(self.java.location())) is not None

    def of_few_files(self, update: Any) -> Any:
        """Return `update`, a change of a few of the table's files, set to be prepared in the shortest time.

        Iceberg passes each step to a pool of threads, and looks every 10 ms whether it is done. With an object store,
        several requests run at a time then. On a local disk a step takes 1 ms, so the calling thread does it.
        """
        if not self.is_local:
            return update
        here = self.classes.calling_thread
        return update.scanManifestsWith(here).writeManifestsWith(here, 1)

    @property
    def oldest_snapshot_ms(self) -> int:
        """The time of the oldest snapshot that the table still has, milliseconds since the epoch; 0 without any."""
        return min((int(snapshot.timestampMillis()) for snapshot in self.java.snapshots()), default=0)

    def has_snapshot(self, snapshot_id: int) -> bool:
        """Return whether the table still has a snapshot."""
        return snapshot_id == self.snapshot_id or self.java.snapshot(snapshot_id) is not None

    @cached_property
    def schema_id(self) -> int:
        """The id of the current schema: another one has other columns."""
        return int(self.java.schema().schemaId())

    @cached_property
    def is_sorted(self) -> bool:
        """Whether the table has a sort order, so that rows are reordered when they are written."""
        return bool(self.java.sortOrder().isSorted())

    @cached_property
    def _summary(self) -> Mapping[str, str]:
        """The summary of the current snapshot; empty without one."""
        snapshot = self.java.currentSnapshot()
        return {} if snapshot is None else self.classes.texts(snapshot.summary())

    def total(self, key: str) -> int:
        """Return a number of the current snapshot's summary; 0 if it is missing."""
        return int(self._summary.get(key) or 0)

    @property
    def is_empty(self) -> bool:
        """Whether the table certainly has no rows; False if that is unknown."""
        return self.snapshot_id is None or self._summary.get("total-records") == "0"

    @property
    def total_rows(self) -> int:
        """The number of rows in the table's data files, with those that delete files mark as deleted."""
        return self.total("total-records")

    @property
    def row_bytes(self) -> float:
        """The mean size of a row in the table's files, in bytes; 0 if that is unknown."""
        rows = self.total_rows
        return self.total("total-files-size") / rows if rows else 0.0

    @cached_property
    def is_partitioned(self) -> bool:
        """Whether files of the table may belong to partitions: by its partition spec, or by an earlier one.

        A delete file applies only to data files of its own partition and spec.
        """
        if self.java.spec().isPartitioned():
            return True
        specs = self.java.specs()
        return len(specs) > 1 and any(spec.isPartitioned() for spec in specs.values())

    @cached_property
    def partition_layout(self) -> Mapping[str, Any]:
        """The partition spec in Iceberg's JSON form."""
        found: Mapping[str, Any] = json.loads(self.classes.partition_spec_parser.toJson(self.java.spec()))
        return found

    @cached_property
    def format_version(self) -> int:
        """The version of Iceberg's table format."""
        return int(self.java.operations().current().formatVersion())

    @property
    def has_deletion_vectors(self) -> bool:
        """Whether the table's format requires deletion vectors in place of position-delete files."""
        return has_deletion_vectors(self.format_version)

    def columns(self) -> dict[str, LakeType]:
        """Return the columns of types that source columns have, in order; so without a changelog's own struct."""
        return dict(_columns(self.schema_json()))

    def own_columns(self) -> OwnColumns | None:
        """Return the columns that the engine made; None if an earlier version of it did not record them."""
        text = self.property(COLUMNS_KEY)
        return None if text is None else OwnColumns.from_json(text)

    def user_columns(self) -> tuple[str, ...]:
        """Return the columns that others added, in order."""
        own = self.own_columns()
        return () if own is None else tuple(f.name for f in own.users(self.schema_json()))

    def engine_columns(self) -> dict[str, LakeType]:
        """Return `columns` without those that others added."""
        own = self.own_columns()
        return self.columns() if own is None else own.types(self.schema_json())

    def required_columns(self) -> tuple[str, ...]:
        """Return the columns that may not be null, in order: those of a mirror's key."""
        return tuple(f.name for f in fields_of(self.schema_json()) if f.required)

    @cached_property
    def _schema_json(self) -> str:
        return str(self.classes.schema_parser.toJson(self.java.schema()))

    def schema_json(self) -> str:
        """Return the table's schema in Iceberg's JSON form, which takes one JVM call instead of one for each field."""
        return self._schema_json

    @cached_property
    def properties(self) -> Mapping[str, str]:
        """The table's properties."""
        return self.classes.texts(self.java.properties())

    def property(self, key: str) -> str | None:
        """Return one of the table's properties; None if it is not set."""
        return self.properties.get(key)

    def pending_fills(self) -> dict[str, str]:
        """Return added columns whose earlier rows still lack the source's value → that value."""
        return fills_from_json(self.property(PENDING_FILLS_KEY))

    def unfilled(self) -> tuple[str, ...]:
        """Return added columns that are null in earlier rows, because no event has their values."""
        text = self.property(UNFILLED_KEY)
        return () if text is None else names_in(text)

    def kept_rows(self) -> tuple[KeepRows, ...]:
        """Return the statements from before which the mirror has rows that the source may not have."""
        return kept_from_json(self.property(KEPT_KEY))

    def pending_clear(self) -> Truncate | None:
        """Return where the source table was recreated, if rows from before must still be deleted; else None."""
        text = self.property(PENDING_CLEAR_KEY)
        return None if text is None else Truncate.of_values(record_in(text))

    def has_pending_rows(self) -> bool:
        """Return whether earlier rows must still be filled or deleted, as the table's schema version requires."""
        return bool(self.pending_fills()) or self.pending_clear() is not None

    def schema_state(self) -> SchemaState | None:
        """Return the table's schema version; None if an earlier version of the engine created it without one."""
        text = self.property(SCHEMA_KEY)
        return None if text is None else SchemaState.from_json(text)

    def marker(self) -> CommitMarker | None:
        """Return the marker of the newest commit; None if the mirror has not committed to the table."""
        text = self.property(MARKER_KEY)
        return None if text is None else CommitMarker.from_json(text)


_STATE: Final = frozenset(
    name
    for name, member in vars(LakeTable).items()
    if isinstance(member, cached_property) and name not in ("uuid", "is_local")
)


@lru_cache(1024)
def _columns(schema_json: str) -> tuple[tuple[str, LakeType], ...]:
    return tuple((f.name, kind) for f in fields_of(schema_json) if (kind := f.lake_type) is not None)


class Lake:
    """The lake's catalog. Threads may share an instance."""

    def __init__(self, spark: SparkSession) -> None:
        self.spark = spark
        jvm: Any = spark._jvm  # noqa: SLF001 PySpark offers no public way to the JVM
        self.classes = classes_of(jvm)
        self.applied_deletes = AppliedDeletes()
        self._identifiers: dict[tuple[str, str], Any] = {}
        with lake_errors("the lake's catalog cannot be opened"):
            self._catalog: Any = self.classes.spark_util.loadIcebergCatalog(
                spark._jsparkSession,  # noqa: SLF001
                CATALOG_NAME,
            )

    def ensure_namespace(self, name: str) -> None:
        """Create a namespace if it does not exist."""
        with lake_errors(f"namespace {name} cannot be created"):
            namespace = self._namespace(name)
            if not self._catalog.namespaceExists(namespace):
                self._catalog.createNamespace(namespace)

    def namespaces(self) -> list[str]:
        """Return the names of the namespaces of the catalog's first level."""
        with lake_errors("the namespaces cannot be listed"):
            return sorted(str(found.level(0)) for found in self._catalog.listNamespaces())

    def tables(self, namespace: str) -> list[str]:
        """Return the names of the tables in a namespace, sorted."""
        with lake_errors(f"namespace {namespace} cannot be listed"):
            listed = self._catalog.listTables(self._namespace(namespace))
            return sorted(identifier.name() for identifier in listed)

    def load(self, namespace: str, name: str) -> LakeTable | None:
        """Load a table's current state; None if the table does not exist."""
        try:
            with lake_errors(f"table {namespace}.{name} cannot be loaded"):
                return self._loaded(namespace, name)
        except LakeUnavailable as error:
            cause = error.__cause__
            if (
                isinstance(cause, Py4JJavaError)
                and java_class(cause) == _ICEBERG_ERRORS + "NoSuchTableException"
            ):
                return None
            raise

    def _loaded(self, namespace: str, name: str) -> LakeTable:
        java = self._catalog.loadTable(self._identifier(namespace, name))
        return LakeTable(namespace, name, java, self.classes)

    def create(
        self,
        namespace: str,
        name: str,
        schema_json: str,
        spec_json: str | None,
        properties: Mapping[str, str],
        location: str | None = None,
    ) -> LakeTable:
        """Create a table from Iceberg's JSON forms of its schema and partition spec.

        It gets `ENGINE_PROPERTIES`, which `properties` precede. Without a `location`, the catalog chooses it. Where the
        table is, is recorded as its property `CREATED_KEY`.
        """
        with lake_errors(f"table {namespace}.{name} cannot be created"):
            schema = self.classes.schema_parser.fromJson(schema_json)
            builder = self._catalog.buildTable(self._identifier(namespace, name), schema)
            if spec_json is not None:
                spec = self.classes.partition_spec_parser.fromJson(schema, spec_json)
                builder = builder.withPartitionSpec(spec)
            if location is not None:
                builder = builder.withLocation(location)
            for key, value in {**ENGINE_PROPERTIES, **properties}.items():
                builder = builder.withProperty(key, value)
            created = builder.createTransaction()
            created.updateProperties().set(CREATED_KEY, str(created.table().location())).commit()
            created.commitTransaction()
            return self._loaded(namespace, name)

    def location_of_new(self, namespace: str, name: str, schema_json: str) -> str:
        """Return the location that the catalog would choose for a new table. There must be none of this name."""
        with lake_errors(f"the location of {namespace}.{name} is unknown"):
            schema = self.classes.schema_parser.fromJson(schema_json)
            builder = self._catalog.buildTable(self._identifier(namespace, name), schema)
            # It is not committed, so there is no table.
            return str(builder.createTransaction().table().location())

    def rename(self, namespace: str, old: str, new: str, *, into: str | None = None) -> None:
        """Rename a table, or move it `into` another namespace. Not every catalog supports it."""
        to = namespace if into is None else into
        with lake_errors(f"table {namespace}.{old} cannot be renamed to {to}.{new}"):
            self._catalog.renameTable(self._identifier(namespace, old), self._identifier(to, new))

    def drop(self, namespace: str, name: str) -> None:
        """Remove a table from the catalog, with its files; do nothing if it does not exist."""
        with lake_errors(f"table {namespace}.{name} cannot be dropped"):
            self._catalog.dropTable(self._identifier(namespace, name), True)

    def check_writable(self, table: LakeTable) -> None:
        """Write a file beside the data of a table, and delete it: `LakeUnavailable` if that is not possible."""
        with lake_errors("the lake's storage cannot be written"):
            path = table.java.locationProvider().newDataLocation(f"replicator-probe-{uuid.uuid4().hex}")
            stream = table.java.io().newOutputFile(path).create()
            stream.write(bytes(_PROBE_BYTES))
            stream.close()
            table.java.io().deleteFile(path)

    def upgrade(self, table: LakeTable, format_version: int) -> None:
        """Upgrade the format of a table; a table with this version or a later one keeps it."""
        # Every table has at least the default version.
        if format_version == DEFAULT_FORMAT or table.format_version >= format_version:
            return
        with lake_errors(f"table {table.namespace}.{table.name} cannot be upgraded"):
            table.java.updateProperties().set(FORMAT_KEY, str(format_version)).commit()
            table.refresh()

    def create_branch(self, table: LakeTable, branch: str) -> None:
        """Create `branch` at the current snapshot; a branch left by a crash is replaced."""
        with lake_errors(f"branch {branch} of {table.namespace}.{table.name} cannot be created"):
            manage = table.java.manageSnapshots()
            if table.java.refs().containsKey(branch):
                manage.removeBranch(branch)
            manage.createBranch(branch, table.snapshot_id).commit()
            table.refresh()

    def namespace_properties(self, namespace: str) -> dict[str, str]:
        """Return the properties of a namespace."""
        with lake_errors(f"namespace {namespace} cannot be read"):
            return self.classes.texts(self._catalog.loadNamespaceMetadata(self._namespace(namespace)))

    def set_namespace_property(self, namespace: str, key: str, value: str | None) -> None:
        """Set a property of a namespace; None removes it."""
        with lake_errors(f"namespace {namespace} cannot be changed"):
            collections = self.classes.collections
            if value is None:
                self._catalog.removeProperties(self._namespace(namespace), collections.singleton(key))
            else:
                self._catalog.setProperties(self._namespace(namespace), collections.singletonMap(key, value))

    def _namespace(self, name: str) -> Any:
        return self.classes.namespace.of(self.array(self.classes.string, [name]))

    def _identifier(self, namespace: str, name: str) -> Any:
        found = self._identifiers.get((namespace, name))
        if found is None:
            parts = self.array(self.classes.string, [namespace, name])
            found = self._identifiers[namespace, name] = self.classes.table_identifier.of(parts)
        return found

    def array(self, java_class: StaticMembers, values: Sequence[Any]) -> Any:
        """Return a Java array of a class."""
        return java_class.array(self.spark.sparkContext._gateway, values)  # noqa: SLF001
