"""Define the configuration of one mirror as frozen, typed values. `loading` reads them from a TOML file."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from replicator.config.catalogs import CATALOGS, CatalogKind, CatalogName, Database
from replicator.config.log_tables import LogTableConfig, check_log_tables
from replicator.config.paths import CatalogUri, LocalPath, Location
from replicator.config.secrets import OptionValue, Secret, SecretRef, refuse_literal_secrets, reveal_all
from replicator.config.sections import (
    DEFAULT_VERIFY,
    ArchiveLog,
    BootstrapConfig,
    ColumnsConfig,
    HealConfig,
    KafkaLog,
    MaintenanceConfig,
    MirrorColumnsConfig,
    PipelinesConfig,
    SchemaChangesConfig,
    TableMaintenanceConfig,
    TableSectionError,
    TagsConfig,
    Unlisted,
    VerifyConfig,
    check_history,
)
from replicator.config.values import (
    NAME,
    Partition,
    Section,
    Size,
    SourceUrl,
    TableName,
    TablePattern,
    Trigger,
    Url,
)
from replicator.errors import ConfigError
from replicator.model.column_rules import RuleSet
from replicator.model.common import has_wildcard, matches
from replicator.model.partitioning import PartitionField
from replicator.model.roles import LakeRole
from replicator.model.table import SourceName
from replicator.schema.evolution.changes import ChangeKind, Policy, UnloggedPolicy

Strategy = Literal["split", "merge", "copy-on-write", "equality"]
FormatVersion = Literal[2, 3]
OnBadEvent = Literal["quarantine", "pause"]
Keyless = Literal["identity", "changelog", "pause"]

HELPER_TABLES = tuple(f"*._*_{end}" for end in ("gho", "ghc", "ghr", "del", "new", "old"))
"""Names of the helper tables of gh-ost and pt-online-schema-change, as `database.table` patterns."""

CATALOG_NAME = "lake"
"""The catalog's name in both Spark and PyIceberg: the JDBC catalog stores it in every row."""

_WORD = r"^[A-Za-z_][A-Za-z0-9_]*$"


def _state_dir(data: dict[str, Any]) -> str:
    return f".replicator/{data.get('name', 'mirror')}"


class MirrorConfig(Section):
    """`[mirror]`: the mirror's name, and the folder for state that can be lost (checkpoints, logs)."""

    name: Annotated[str, Field(pattern=NAME)]
    state_dir: Annotated[LocalPath, Field(default_factory=_state_dir, validate_default=True)]


class SourceConfig(Section):
    """`[source]`: the MySQL server, and the tables to mirror.

    `ssl_mode` is "preferred" to encrypt connections if the server can, or "disabled". With `watch_binlog`, the mirror
    of a Kafka log reads the server's binlog too, and looks for changes that the events do not show. `cascades` is
    what it does with tables whose rows foreign keys may have changed without events; see `Config.rereads_cascades`.
    """

    url: Url | None = None
    password: Secret | None = None
    ssl_mode: Literal["preferred", "disabled"] = "preferred"
    tables: Annotated[tuple[TablePattern, ...], Field(min_length=1)]
    exclude: tuple[TablePattern, ...] = ()
    helper_tables: bool = False
    watch_binlog: bool = True
    cascades: Literal["warn", "reread"] = "reread"
    signal_table: TableName | None = None

    def server(self) -> SourceUrl:
        """Return the server's address. Raises ConfigError if the file has none (an archive needs no server)."""
        if self.url is None:
            raise ConfigError(
                "source.url is not set", 'add url = "mysql://user@host:3306/database" to [source]'
            )
        return self.url

    @property
    def left_out(self) -> tuple[str, ...]:
        """Patterns of tables that are not mirrored: `exclude`, the signal table, and helper tables unless included.

        The connector reads the signal table and the helper tables nevertheless: signals arrive by the former, and
        without the latter it would not know the table that a helper table is renamed to.
        """
        helpers = () if self.helper_tables else HELPER_TABLES
        signal = self.signal_table
        # A name that contains a wildcard would, as a pattern, match other tables too.
        signals = () if signal is None or has_wildcard(signal) else (signal,)
        return (*self.exclude, *signals, *helpers)

    def includes(self, table: str) -> bool:
        """Return whether `database.table` is mirrored: a pattern of `tables` matches it, and it is not excluded."""
        return matches(table, self.tables) and not self.excludes(table)

    def excludes(self, table: str) -> bool:
        """Return whether `database.table` is the signal table or matches a pattern of `left_out`."""
        return table == self.signal_table or matches(table, self.left_out)


class LakeConfig(Section):
    """`[lake]`: the Iceberg catalog, the location of the files, and the namespace of the mirrored tables."""

    catalog: CatalogName
    uri: CatalogUri | None = None
    warehouse: Location | None = None
    namespace: Annotated[str, Field(pattern=_WORD)]
    options: Mapping[str, OptionValue] = {}

    @field_validator("options")
    @classmethod
    def _no_secrets(cls, options: Mapping[str, str | SecretRef]) -> Mapping[str, str | SecretRef]:
        refuse_literal_secrets(options)
        return options

    @field_validator("uri", "warehouse")
    @classmethod
    def _no_password(cls, address: str | None) -> str | None:
        if address is not None and re.search(r"password=|//[^/@]+:[^/@]+@", address, re.IGNORECASE):
            raise ValueError('contains a password; remove it and set it in lake.options, as { env = "NAME" }')
        return address

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if self.kind.needs_uri and self.uri is None:
            raise ValueError(f'uri is required with catalog = "{self.catalog}"')
        if self.kind.needs_warehouse and self.warehouse is None:
            raise ValueError(f'warehouse is required with catalog = "{self.catalog}"')
        if self.kind.databases and self.uri is not None and not self.uri.startswith("jdbc:"):
            raise ValueError(
                f'with catalog = "{self.catalog}", uri starts with "jdbc:", as in "jdbc:sqlite:lake/catalog.db"'
            )
        return self

    @property
    def kind(self) -> CatalogKind:
        """What the engine knows of this kind of catalog."""
        return CATALOGS[self.catalog]

    @property
    def database(self) -> Database | None:
        """The database of a JDBC catalog; None for another catalog or database."""
        return self.kind.databases.get((self.uri or "").removeprefix("jdbc:").partition(":")[0])

    @property
    def folds_case(self) -> bool:
        """Whether the catalog treats names that differ only in letter case as equal."""
        return self.kind.folds_case or (self.database is not None and self.database.folds_case)

    def namespace_of(self, role: LakeRole) -> str:
        """Return the namespace of the lake tables of a role."""
        return f"{self.namespace}{role.suffix}"

    @property
    def namespaces(self) -> tuple[str, ...]:
        """All namespaces of the mirror, that of operational tables last."""
        return (*map(self.namespace_of, LakeRole), self.ops_namespace)

    @property
    def changes_namespace(self) -> str:
        """The namespace of the changelogs."""
        return self.namespace_of(LakeRole.CHANGELOG)

    @property
    def pipelines_namespace(self) -> str:
        """The namespace of the results of pipelines that name no other one."""
        return f"{self.namespace}_pipelines"

    @property
    def history_namespace(self) -> str:
        """The namespace of the histories of tables."""
        return f"{self.namespace}_history"

    @property
    def ops_namespace(self) -> str:
        """The namespace of the quarantine and other operational tables."""
        return f"{self.namespace}_ops"

    @property
    def catalog_file(self) -> Path | None:
        """The file of a SQLite catalog, even if it does not exist yet; None for any other catalog."""
        prefix, uri = "jdbc:sqlite:", self.uri or ""
        return Path(uri.removeprefix(prefix).split("?")[0]) if uri.startswith(prefix) else None

    @property
    def is_new(self) -> bool:
        """Whether nothing of the lake exists yet. Opening its catalog would create an empty file."""
        return self.catalog_file is not None and not self.catalog_file.exists()

    def catalog_options(self) -> dict[str, str]:
        """Return `options` with secrets included: never log them."""
        return reveal_all(self.options)


class ApplyConfig(Section):
    """`[apply]`: how changes become commits. `trigger` is in seconds; 0 means as soon as possible."""

    trigger: Trigger = 10.0
    max_events: Annotated[int, Field(ge=1)] = 1_000_000
    max_size: Size = 2_000_000_000
    driver_max_events: Annotated[int, Field(ge=0)] = 10_000
    max_index_size: Size = 8_000_000_000
    parallel_tables: Annotated[int, Field(ge=1, le=64)] = 4
    strategy: Strategy = "split"
    format_version: FormatVersion = 2
    changelog: bool = True
    on_bad_event: OnBadEvent = "quarantine"
    keyless: Keyless = "identity"


class SparkConfig(Section):
    """`[spark]`: where Spark runs. `conf` is passed to the session unchanged."""

    master: Annotated[str, Field(min_length=1)] = "local[*]"
    driver_memory: Annotated[str, Field(pattern=r"^[1-9][0-9]*[kmgKMG]$")] = "3g"
    conf: Mapping[str, OptionValue] = {}

    @property
    def is_local(self) -> bool:
        """Whether driver and executor are one process on this machine."""
        return self.master == "local" or self.master.startswith("local[")

    def session_conf(self) -> dict[str, str]:
        """Return `conf` with secrets included: never log them."""
        return reveal_all(self.conf)


class TableConfig(Section):
    """`[[table]]`: settings of one table."""

    name: TableName
    partition: tuple[Partition, ...] = ()
    key: tuple[str, ...] = ()
    strategy: Strategy | None = None
    format_version: FormatVersion | None = None
    changelog: bool | None = None
    on_bad_event: OnBadEvent | None = None
    columns: ColumnsConfig = ColumnsConfig()
    keyless: Keyless | None = None
    schema_changes: SchemaChangesConfig = SchemaChangesConfig()
    maintenance: TableMaintenanceConfig = TableMaintenanceConfig()
    properties: Mapping[str, str] = {}
    history: Literal["scd2", "soft_delete", "append"] | None = None
    history_columns: tuple[Annotated[str, Field(min_length=1)], ...] = ()

    @model_validator(mode="after")
    def _history_has_columns(self) -> Self:
        if self.history_columns and self.history != "scd2":
            raise ValueError('history_columns has an effect only with history = "scd2"; remove it')
        return self

    @field_validator("properties")
    @classmethod
    def _no_format(cls, properties: Mapping[str, str]) -> Mapping[str, str]:
        if "format-version" in properties:
            raise ValueError('"format-version" has its own key: format_version')
        return properties


@dataclass(frozen=True, slots=True)
class TableOptions:
    """All settings of one table, with the defaults of `[apply]` filled in."""

    name: str
    partition: tuple[PartitionField, ...]
    key: tuple[str, ...]
    strategy: Strategy
    format_version: FormatVersion
    changelog: bool
    on_bad_event: OnBadEvent
    columns: ColumnsConfig
    keyless: Keyless
    schema_changes: Mapping[ChangeKind, Policy | UnloggedPolicy]
    maintenance: MaintenanceConfig
    properties: Mapping[str, str]


def _loses(name: str, rules: ColumnsConfig, unlisted: Unlisted) -> bool:
    """Return whether a column would be excluded or masked."""
    masks = tuple((pattern, mask.mask()) for pattern, mask in rules.mask.items() if name not in rules.hash)
    found = RuleSet(rules.include if unlisted == "allow" else (), rules.exclude, masks=masks)
    return found.rule(SourceName(name, name)) is not None


def _check_sections(names: Sequence[str], source: SourceConfig) -> None:
    """Check that each section has a table of its own that is mirrored.

    Raises:
        TableSectionError: it has none.
    """
    for index, name in enumerate(names):
        if (problem := _problem(name, names[:index], source)) is not None:
            raise TableSectionError(f'"{name}" {problem}', index, "name")


def _problem(name: str, earlier: Sequence[str], source: SourceConfig) -> str | None:
    if name in earlier:
        return "appears twice; keep one"
    if not matches(name, source.tables):
        return "does not match source.tables, so its section would have no effect"
    if not source.excludes(name):
        return None
    patterns = [pattern for pattern in source.exclude if matches(name, (pattern,))]
    if not patterns:
        return "is the signal table or a helper table, which are not mirrored; remove its section"
    return (
        f'is left out by source.exclude "{patterns[0]}", so its section would have no effect; '
        "remove the section, or the pattern"
    )


class Config(Section):
    """The whole configuration of one mirror."""

    mirror: MirrorConfig
    source: SourceConfig
    log: Annotated[KafkaLog | ArchiveLog, Field(discriminator="kind")]
    lake: LakeConfig
    apply: ApplyConfig = ApplyConfig()
    bootstrap: BootstrapConfig = BootstrapConfig()
    heal: HealConfig = HealConfig()
    maintenance: MaintenanceConfig = MaintenanceConfig()
    tags: TagsConfig = TagsConfig()
    pipelines: Annotated[PipelinesConfig, Field(default={}, validate_default=True)]
    verify: VerifyConfig = DEFAULT_VERIFY
    schema_changes: SchemaChangesConfig = SchemaChangesConfig()
    spark: SparkConfig = SparkConfig()
    columns: MirrorColumnsConfig = MirrorColumnsConfig()
    tables: Annotated[tuple[TableConfig, ...], Field(alias="table")] = ()
    log_tables: Annotated[tuple[LogTableConfig, ...], Field(alias="log_table")] = ()

    def _needs_connect(self) -> str | None:
        """Return which option needs `log.connect_url`, and why; None if none does."""
        if self.bootstrap.by == "mirror":
            return (
                'bootstrap.by = "mirror" needs log.connect_url: only Kafka Connect knows what is in the log'
            )
        if self._wants_cascades:
            return 'source.cascades = "reread" needs log.connect_url: only Kafka Connect knows what is in the log'
        if "verify" in self.model_fields_set and self.verify.every is not None:
            return "verify.every needs log.connect_url: only Kafka Connect knows up to where the connector has read"
        if self.tags.every is not None:
            return "tags.every needs log.connect_url: only the connector's position proves that no change is missing"
        return None

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if isinstance(self.log, KafkaLog) and self.source.url is None:
            raise ValueError('source.url is required with log.kind = "kafka"')
        if not self.can_read_source and (why := self._needs_connect()) is not None:
            raise ValueError(why)
        if self._wants_cascades and not self.source.watch_binlog:
            raise ValueError(
                'source.cascades = "reread" needs source.watch_binlog: the binlog shows which tables to read again'
            )
        names = [table.name for table in self.tables]
        _check_sections(names, self.source)
        for name in names:
            options = self.table(name)
            if options.keyless == "changelog" and not options.changelog:
                raise ValueError(
                    f'[[table]] "{name}" has keyless = "changelog" and changelog = false; keep one'
                )
        if self.apply.keyless == "changelog" and not self.apply.changelog:
            raise ValueError('[apply] has keyless = "changelog" and changelog = false; keep one')
        self._check_columns()
        for table in self.tables:
            if table.history is not None:
                check_history(table.name, self.log, changelog=self.table(table.name).changelog)
        check_log_tables(self.log_tables, self.log, self.source.includes, self._other_namespaces)
        return self

    @property
    def log_table_names(self) -> tuple[tuple[str, str], ...]:
        """Namespace and name of each log table."""
        return tuple((settings.namespace, settings.name) for settings in self.log_tables)

    @property
    def _other_namespaces(self) -> tuple[str, ...]:
        """The namespaces that no log table may be in."""
        return (*self.lake.namespaces, self.lake.pipelines_namespace, self.lake.history_namespace)

    def _check_columns(self) -> None:
        hashes = [*self.columns.hash, *(pattern for table in self.tables for pattern in table.columns.hash)]
        if hashes and self.columns.hash_key is None:
            raise ValueError(
                f'column "{hashes[0]}" is hashed, but no key is set; '
                'set hash_key = { env = "NAME" } in [columns]'
            )
        for table in self.tables:
            unlisted = self.unlisted(table.name)
            for name in table.key:
                if _loses(name, table.columns, unlisted) or _loses(name, self.columns, unlisted):
                    raise ValueError(
                        f'[[table]] "{table.name}": column "{name}" is in the key, so it cannot be excluded or masked; '
                        "hash it instead"
                    )

    def includes(self, table: str) -> bool:
        """Return whether `database.table` is mirrored."""
        return self.source.includes(table)

    @property
    def can_read_source(self) -> bool:
        """Whether the mirror can read tables from the source: only Kafka Connect knows what the log contains."""
        return isinstance(self.log, KafkaLog) and self.log.connect_url is not None

    @property
    def compares_values(self) -> bool:
        """Whether a running mirror compares its rows with the source by itself."""
        return self.verify.enabled and self.can_read_source

    @property
    def _wants_cascades(self) -> bool:
        """Whether the file says that tables are read again whose rows foreign keys may have changed."""
        return "cascades" in self.source.model_fields_set and self.source.cascades == "reread"

    @property
    def rereads_cascades(self) -> bool:
        """Whether tables are read again whose rows foreign keys may have changed: by default, if they can be."""
        return self.source.cascades == "reread" and self.source.watch_binlog and self.can_read_source

    @property
    def reads_new_tables(self) -> bool:
        """Whether the mirror, and not the connector, reads the rows that a table has when it is mirrored first."""
        return self.can_read_source and self.bootstrap.by != "connector"

    def unlisted(self, table: str) -> Unlisted:
        """Return the policy for columns of `database.table` without a column rule: the table's, else the mirror's."""
        own = next((section.columns.unlisted for section in self.tables if section.name == table), None)
        return own or self.columns.unlisted or "allow"

    def table(self, table: str) -> TableOptions:
        """Return the settings of `database.table`, whether or not it has its own section."""
        own = next((section for section in self.tables if section.name == table), TableConfig(name=table))
        return TableOptions(
            name=table,
            partition=own.partition,
            key=own.key,
            strategy=own.strategy or self.apply.strategy,
            format_version=own.format_version or self.apply.format_version,
            changelog=self.apply.changelog if own.changelog is None else own.changelog,
            on_bad_event=own.on_bad_event or self.apply.on_bad_event,
            columns=own.columns,
            keyless=own.keyless or self.apply.keyless,
            schema_changes=self.schema_changes.policies() | own.schema_changes.policies(),
            maintenance=self.maintenance.model_copy(update=own.maintenance.model_dump(exclude_none=True)),
            properties=own.properties,
        )
