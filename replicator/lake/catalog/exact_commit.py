"""Commit to exactly the metadata with which a table was loaded, or not at all, on every kind of catalog.

Iceberg's own commits apply their changes to newer metadata if there is any. Here the catalog compares. JDBC catalogs
and Hive store the location of the metadata file, and replace it only if it is still the loaded one. A REST catalog has
no such comparison: it gets changes, and requirements that the table must meet. Iceberg derives the requirements from
the changes, so that new properties would be set in any state of the table. Therefore each commit to a REST catalog
makes a snapshot, an empty one if no row changes, and requires all that the protocol can require: the loaded snapshot,
schema, partition spec and sort order. Of two commits on the same state, one succeeds. A REST catalog does not notice
that another program changed only properties in between, without a snapshot: both changes are kept then.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from replicator.errors import CommitConflict
from replicator.lake.catalog.java import JavaClasses
from replicator.lake.catalog.tables import LakeTable, lake_errors

_REST: Final = "org.apache.iceberg.rest."


@dataclass(frozen=True, slots=True)
class ExactTransaction:
    """The changes of one commit. They are added to `java`, an org.apache.iceberg.Transaction.

    Attributes:
        java: the transaction.
        loaded: the metadata (org.apache.iceberg.TableMetadata) on which the commit is made.
        table: the table.
        is_rest: whether a REST catalog has the table.
    """

    java: Any
    loaded: Any
    table: LakeTable
    is_rest: bool

    def add_snapshot(self, summary: tuple[str, str] | None = None) -> None:
        """Add an empty snapshot if the catalog needs one and the transaction has none; `summary` is put into it.

        It must be called after all changes of rows.
        """
        if self.is_rest and _head(self.java.currentMetadata()) == _head(self.loaded):
            append = self.java.newFastAppend()
            if summary is not None:
                append.set(*summary)
            append.commit()

    def commit(self) -> None:
        """Replace the loaded metadata with the changed metadata.

        Raises:
            Py4JJavaError: a CommitFailedException if the table has other metadata than the loaded one; nothing is
                committed then. After any other exception, the commit may have succeeded.
        """
        self.add_snapshot()
        operations, changed = self.java.underlyingOps(), self.java.currentMetadata()
        try:
            if self.is_rest:
                _rest_operations(self.table.classes).commit(operations, self.loaded, changed)
            else:
                operations.commit(self.loaded, changed)
        finally:
            self.table.forget()


def begin(table: LakeTable) -> ExactTransaction:
    """Begin a commit on the state in which `table` was loaded.

    Raises:
        CommitConflict: the table was changed since.
    """
    operations = table.java.operations()
    loaded = operations.current()
    java = table.java.newTransaction()
    start = java.startMetadata()
    if start.metadataFileLocation() != loaded.metadataFileLocation():
        table.forget()
        raise CommitConflict(f"{table.namespace}.{table.name} was changed since it was loaded")
    is_rest = _rest_operations(table.classes).has(operations)
    # A REST catalog need not tell the location. Other catalogs' operations compare the object too.
    return ExactTransaction(java, loaded if is_rest else start, table, is_rest)


@contextmanager
def exact_change(table: LakeTable, doing: str) -> Iterator[Any]:
    """Provide a transaction (org.apache.iceberg.Transaction) on the state in which `table` was loaded, and commit it.

    `table` is then refreshed. `doing` begins the messages of errors.

    Raises:
        CommitConflict: the table was changed since it was loaded; nothing was committed.
        LakeUnavailable: the catalog failed.
    """
    with lake_errors(doing):
        exact = begin(table)
        yield exact.java
        exact.commit()
        table.refresh()


def set_properties(table: LakeTable, properties: Mapping[str, str]) -> None:
    """Set the properties that differ; without a difference there is no commit. Raises as `exact_change`."""
    changed = {key: value for key, value in properties.items() if table.property(key) != value}
    if not changed:
        return
    with exact_change(table, f"properties of {table.namespace}.{table.name} cannot be set") as transaction:
        update = transaction.updateProperties()
        for key, value in changed.items():
            update.set(key, value)
        update.commit()


def _head(metadata: Any) -> int | None:
    snapshot = metadata.currentSnapshot()
    return None if snapshot is None else int(snapshot.snapshotId())


class _RestOperations:
    """Commits with more requirements than Iceberg's client of REST catalogs sends.

    That client, `RESTTableOperations`, has no public way to add requirements. Its connection is used as it uses it.
    """

    def __init__(self, classes: JavaClasses) -> None:
        self._classes = classes
        self._class: Any = classes.java_class.forName(f"{_REST}RESTTableOperations")
        self._response: Any = classes.java_class.forName(f"{_REST}responses.LoadTableResponse")
        self._client, self._path, self._headers, self._current = (
            self._field(name) for name in ("client", "path", "mutationHeaders", "current")
        )

    def has(self, operations: Any) -> bool:
        """Return whether these TableOperations are those of a REST catalog."""
        return bool(self._class.isInstance(operations))

    def commit(self, operations: Any, loaded: Any, changed: Any) -> None:
        """Send the changes between two versions of the metadata, with requirements that describe the first."""
        request = self._classes.update_table_request(self._requirements(loaded, changed), changed.changes())
        response = self._client.get(operations).post(
            self._path.get(operations),
            request,
            self._response,
            self._headers.get(operations),
            self._classes.rest_errors.tableCommitHandler(),
        )
        self._current.set(operations, response.tableMetadata())

    def _requirements(self, loaded: Any, changed: Any) -> Any:
        derived = self._classes.update_requirements.forUpdateTable(loaded, changed.changes())
        require = self._classes.update_requirement
        required = self._classes.array_list()
        required.addAll(derived)
        known = {str(found.getClass().getSimpleName()) for found in derived}
        for name, value in (
            ("AssertLastAssignedFieldId", loaded.lastColumnId()),
            ("AssertCurrentSchemaID", loaded.currentSchemaId()),
            ("AssertLastAssignedPartitionId", loaded.lastAssignedPartitionId()),
            ("AssertDefaultSpecID", loaded.defaultSpecId()),
            ("AssertDefaultSortOrderID", loaded.defaultSortOrderId()),
        ):
            if name not in known:
                required.add(getattr(require, name)(value))
        return required

    def _field(self, name: str) -> Any:
        field = self._class.getDeclaredField(name)
        field.setAccessible(True)
        return field


@lru_cache(4)
def _rest_operations(classes: JavaClasses) -> _RestOperations:
    return _RestOperations(classes)
