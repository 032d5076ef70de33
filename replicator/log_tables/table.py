"""The lake table of a topic: made with the columns of its events, to which columns are added."""

import json
from dataclasses import dataclass

from replicator.config import Config
from replicator.config.log_tables import LogTableConfig
from replicator.errors import ForeignTable, UnfitColumns
from replicator.lake.catalog.exact_commit import exact_change
from replicator.lake.catalog.metadata import FORMAT_KEY, spec_of_schema, table_location
from replicator.lake.catalog.tables import Lake, LakeTable
from replicator.lake.others import refuse_foreign, refuse_rollback
from replicator.model.partitioning import PartitionField
from replicator.model.shapes import Shape, from_iceberg, paths, to_iceberg
from replicator.model.table import LOG_TOPIC_KEY, MIRROR_KEY


@dataclass(frozen=True, slots=True)
class LogTableStore:
    """Loads, creates and changes the table of a topic."""

    config: Config
    lake: Lake
    settings: LogTableConfig

    def load(self) -> LakeTable | None:
        """Load the table; None if there is none.

        Raises:
            ForeignTable: it is not the one of this topic.
            ForeignChange: it was rolled back.
            UnfitColumns: it has other columns, or another partitioning, than the configuration says.
        """
        table = self.lake.load(self.settings.namespace, self.settings.name)
        if table is None:
            return None
        refuse_foreign(table, self.config.mirror.name)
        if table.property(LOG_TOPIC_KEY) != self.settings.topic:
            raise ForeignTable(
                f"{self.settings.table} exists, and is not the table of the topic {self.settings.topic}",
                f"choose another table, or drop that one: replicator drop {self.settings.table}",
            )
        refuse_rollback(self.lake, table, is_mirror=False)
        self._check_columns(self.columns(table))
        self._check_partition(table)
        return table

    def columns(self, table: LakeTable) -> Shape:
        """Return all columns of the table."""
        return from_iceberg(table.schema_json())

    def shape(self, table: LakeTable) -> Shape:
        """Return the columns that come from the values of events."""
        own = self.settings.record_columns
        return {name: kind for name, kind in self.columns(table).items() if name not in own}

    def create(self, shape: Shape) -> LakeTable:
        """Create the table. Raises LakeUnavailable."""
        settings = self.settings
        self.lake.ensure_namespace(settings.namespace)
        schema = to_iceberg({**shape, **settings.record_columns})
        properties = {
            FORMAT_KEY: str(self.config.apply.format_version),
            MIRROR_KEY: self.config.mirror.name,
            LOG_TOPIC_KEY: settings.topic,
        }
        location = table_location(self.config.lake, settings.namespace, settings.name)
        return self.lake.create(
            settings.namespace, settings.name, schema, self._spec(schema), properties, location
        )

    def add(self, table: LakeTable, found: Shape) -> None:
        """Add columns, also inside of structs, in one commit; `table` is then refreshed.

        Raises:
            CommitConflict: the table was changed since it was loaded.
            LakeUnavailable: the catalog failed.
        """
        with exact_change(table, f"columns cannot be added to {self.settings.table}") as transaction:
            schema = self.lake.classes.schema_parser.fromJson(to_iceberg(found))
            transaction.updateSchema().unionByNameWith(schema).commit()

    def add_missing(self, table: LakeTable) -> None:
        """Add the columns that the configuration has got since the table was made. Raises as `add`."""
        present, wanted = self.columns(table), {**self.settings.columns, **self.settings.record_columns}
        if missing := {name: kind for name, kind in wanted.items() if name not in present}:
            self.add(table, missing)

    def _check_columns(self, present: Shape) -> None:
        known = dict(paths(present))
        for path, kind in paths({**self.settings.columns, **self.settings.record_columns}):
            found = known.get(path)
            if found is not None and found != kind:
                raise UnfitColumns(
                    f"column {'.'.join(path)} of {self.settings.table} is {found}, and {kind} in the configuration",
                    f'write "{found}" in columns; or, for {kind}, drop the table and read the topic again: '
                    f"replicator drop {self.settings.table}",
                )

    def _check_partition(self, table: LakeTable) -> None:
        found = table.partition_layout["fields"]
        wanted = json.loads(self._spec(table.schema_json()) or '{"fields": []}')["fields"]
        if [(f["source-id"], f["transform"]) for f in found] != [
            (f["source-id"], f["transform"]) for f in wanted
        ]:
            raise UnfitColumns(
                f"{self.settings.table} is not partitioned as event_time and partition of the configuration say",
                "set them as they were when the table was made; or drop the table and read the topic again: "
                f"replicator drop {self.settings.table}",
            )

    def _spec(self, schema: str) -> str | None:
        """Return Iceberg's JSON of the partition spec; None if the table has no partitions."""
        column, transform = self.settings.event_time, self.settings.partition
        if column is None or transform is None:
            return None
        return spec_of_schema(schema, [PartitionField("hours" if transform == "hour" else "days", column)])
