"""The configuration of one mirror as frozen, typed values. `loading` reads them from a TOML file."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from replicator.config.kafka import java_client_options
from replicator.config.paths import CatalogUri, LocalPath, Warehouse
from replicator.config.secrets import OptionValue, Secret, SecretRef, refuse_literal_secrets, reveal_all
from replicator.config.values import (
    ColumnPattern,
    Partition,
    SourceUrl,
    TableName,
    TablePattern,
    Trigger,
    Url,
    glob_literal,
)
from replicator.errors import ConfigError
from replicator.model.columns import Blank, FixedText, KeepLast, Mask, RuleSet
from replicator.model.partition import PartitionField
from replicator.model.schema_change import ChangeKind, Policy

Strategy = Literal["split", "merge", "copy-on-write"]
OnBadEvent = Literal["quarantine", "pause"]
Keyless = Literal["identity", "changelog", "pause"]

HELPER_TABLES = tuple(f"*._*_{end}" for end in ("gho", "ghc", "ghr", "del", "new", "old"))
"""What gh-ost and pt-online-schema-change call the tables that they work with, `database.table` patterns."""

CATALOG_NAME = "lake"
"""The catalog's name in Spark and PyIceberg alike: the JDBC catalog stores it in every row."""

APICURIO_API = "/apis/ccompat/"
"""In the address of Apicurio's Confluent-compatible API."""

_NAME = r"^[A-Za-z0-9][A-Za-z0-9_.-]*$"
_WORD = r"^[A-Za-z_][A-Za-z0-9_]*$"


class Section(BaseModel):
    """What every section has in common: unknown keys are errors, values keep their TOML type."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


def _state_dir(data: dict[str, Any]) -> str:
    return f".replicator/{data.get('name', 'mirror')}"


class MirrorConfig(Section):
    """`[mirror]`: which mirror this is, and where it keeps what can be lost (checkpoints, logs)."""

    name: Annotated[str, Field(pattern=_NAME)]
    state_dir: Annotated[LocalPath, Field(default_factory=_state_dir, validate_default=True)]


class SourceConfig(Section):
    """`[source]`: the MySQL server, and which of its tables are mirrored."""

    url: Url | None = None
    password: Secret | None = None
    tables: Annotated[tuple[TablePattern, ...], Field(min_length=1)]
    exclude: tuple[TablePattern, ...] = ()
    helper_tables: bool = False
    signal_table: TableName | None = None

    def server(self) -> SourceUrl:
        """The server's address. Raises ConfigError where the file names none (an archive needs no server)."""
        if self.url is None:
            raise ConfigError(
                "source.url is not set", 'add url = "mysql://user@host:3306/database" to [source]'
            )
        return self.url

    @property
    def left_out(self) -> tuple[str, ...]:
        """Patterns of tables that are not mirrored: `exclude`, the signal table, and helper tables unless wanted.

        The connector reads the latter two all the same: signals arrive by the one, and without the others it does
        not know the table that one of them is renamed to.
        """
        helpers = () if self.helper_tables else HELPER_TABLES
        signals = () if self.signal_table is None else (glob_literal(self.signal_table),)
        return (*self.exclude, *signals, *helpers)

    def includes(self, table: str) -> bool:
        """Whether `database.table` is mirrored: some pattern of `tables` fits and none of `left_out`."""
        return any(fnmatchcase(table, pattern) for pattern in self.tables) and not self.excludes(table)

    def excludes(self, table: str) -> bool:
        """Whether some pattern of `left_out` fits `database.table`."""
        return any(fnmatchcase(table, pattern) for pattern in self.left_out)


class KafkaLog(Section):
    """`[log] kind = "kafka"`: Debezium's topics.

    `options` are librdkafka's names (`security.protocol`, `sasl.username`, …), one set for both clients: the
    Spark side gets their Java counterparts. `schemas`, `partitions`, `transactions` and `connect_url` serve `connect`.
    `allow_lossy` names options of the connector that may lose data.
    `registry_url` is a schema registry's Confluent-compatible API, where `format` is "avro". With `flattened`, events
    are rows that ExtractNewRecordState made, and not envelopes.
    """

    kind: Literal["kafka"]
    bootstrap_servers: Annotated[str, Field(min_length=1)]
    topic_prefix: Annotated[str, Field(pattern=_NAME)]
    format: Literal["json", "avro"] = "json"
    registry_url: Annotated[str, Field(pattern=r"^https?://")] | None = None
    registry_user: Annotated[str, Field(min_length=1)] | None = None
    registry_password: Secret | None = None
    flattened: bool = False
    schemas: bool = False
    partitions: Annotated[int, Field(ge=1)] = 1
    transactions: bool = False
    connect_url: Annotated[str, Field(pattern=r"^https?://")] | None = None
    allow_lossy: tuple[str, ...] = ()
    options: dict[str, OptionValue] = {}

    @field_validator("options")
    @classmethod
    def _known_places(cls, options: dict[str, str | SecretRef]) -> dict[str, str | SecretRef]:
        refuse_literal_secrets(options)
        if "bootstrap.servers" in options:
            raise ValueError('"bootstrap.servers" has its own key: log.bootstrap_servers')
        return options

    @field_validator("registry_url")
    @classmethod
    def _no_login(cls, url: str | None) -> str | None:
        if url is not None and "@" in url.split("/")[2]:
            raise ValueError(
                "holds a login; take it out and set registry_user and registry_password = { env = … }"
            )
        return url

    @model_validator(mode="after")
    def _registry_fits(self) -> Self:
        if self.format == "avro" and self.registry_url is None:
            raise ValueError('registry_url is required with format = "avro"')
        if self.format == "avro" and self.schemas:
            raise ValueError('schemas has no meaning with format = "avro"; leave it out')
        if self.format == "json" and self.registry_url is not None:
            raise ValueError('registry_url has no meaning with format = "json"; leave it out')
        if (self.registry_user is None) != (self.registry_password is None):
            raise ValueError("registry_user and registry_password go together")
        if self.registry_user is not None and self.registry_url is None:
            raise ValueError('registry_user has no meaning with format = "json"; leave it out')
        return self

    @property
    def registry_is_apicurio(self) -> bool:
        """Whether the registry is Apicurio's, by its address; `connect` then sets its converter up."""
        return APICURIO_API in (self.registry_url or "")

    @property
    def nulls_are_lost(self) -> bool:
        """Whether the converter writes a column's default where a nullable column that has one is NULL.

        Apicurio's does and cannot be told not to; the others are told by `connect`. `allow_lossy` allows it by the name
        of the setting that chooses the converter.
        """
        return self.format == "avro" and self.registry_is_apicurio

    @property
    def defaults_are_accepted(self) -> bool:
        """Whether that is allowed."""
        return "value.converter" in self.allow_lossy

    def registry_login(self) -> tuple[str, str] | None:
        """User and password of the registry: never log them. Raises ConfigError where the secret is missing."""
        if self.registry_user is None or self.registry_password is None:
            return None
        return self.registry_user, self.registry_password.reveal().get_secret_value()

    def client_options(self) -> dict[str, Any]:
        """Settings for a confluent-kafka client, secrets included: never log them."""
        return {"bootstrap.servers": self.bootstrap_servers, **reveal_all(self.options)}

    def spark_options(self) -> dict[str, str]:
        """The same settings for Spark's Kafka source, each under `kafka.`; secrets included."""
        return {f"kafka.{name}": value for name, value in java_client_options(self.client_options()).items()}


class ArchiveLog(Section):
    """`[log] kind = "archive"`: a recorded event archive. `topic_prefix` defaults to the manifest's."""

    kind: Literal["archive"]
    path: LocalPath
    topic_prefix: Annotated[str, Field(pattern=_NAME)] | None = None
    flattened: bool = False


class LakeConfig(Section):
    """`[lake]`: the Iceberg catalog, where the files go, and the namespace of the mirrored tables."""

    needs_uri: ClassVar[tuple[str, ...]] = ("jdbc", "rest", "hive")

    catalog: Literal["jdbc", "rest", "hive", "glue"]
    uri: CatalogUri | None = None
    warehouse: Warehouse | None = None
    namespace: Annotated[str, Field(pattern=_WORD)]
    options: dict[str, OptionValue] = {}

    @field_validator("options")
    @classmethod
    def _no_secrets(cls, options: dict[str, str | SecretRef]) -> dict[str, str | SecretRef]:
        refuse_literal_secrets(options)
        return options

    @field_validator("uri", "warehouse")
    @classmethod
    def _no_password(cls, address: str | None) -> str | None:
        if address is not None and re.search(r"password=|//[^/@]+:[^/@]+@", address, re.IGNORECASE):
            raise ValueError('holds a password; take it out and set it in lake.options, as { env = "NAME" }')
        return address

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if self.catalog in self.needs_uri and self.uri is None:
            raise ValueError(f'uri is required with catalog = "{self.catalog}"')
        if self.catalog != "rest" and self.warehouse is None:
            raise ValueError(f'warehouse is required with catalog = "{self.catalog}"')
        if self.catalog == "jdbc" and self.uri is not None and not self.uri.startswith("jdbc:"):
            raise ValueError(
                'with catalog = "jdbc", uri starts with "jdbc:", as in "jdbc:sqlite:lake/catalog.db"'
            )
        return self

    @property
    def folds_case(self) -> bool:
        """Whether the catalog takes names that differ only in letter case for one."""
        return self.catalog in ("hive", "glue") or (self.uri or "").startswith("jdbc:mysql")

    @property
    def changes_namespace(self) -> str:
        """Where the changelogs are."""
        return f"{self.namespace}_changes"

    @property
    def ops_namespace(self) -> str:
        """Where quarantine and other operational tables are."""
        return f"{self.namespace}_ops"

    @property
    def catalog_file(self) -> Path | None:
        """The file of a SQLite catalog, whether or not it exists; None for any other catalog."""
        prefix, uri = "jdbc:sqlite:", self.uri or ""
        return Path(uri.removeprefix(prefix).split("?")[0]) if uri.startswith(prefix) else None

    def catalog_options(self) -> dict[str, str]:
        """`options` with secrets included: never log them."""
        return reveal_all(self.options)


class ApplyConfig(Section):
    """`[apply]`: how changes become commits. `trigger` is in seconds, 0 means as soon as possible."""

    trigger: Trigger = 10.0
    max_events: Annotated[int, Field(ge=1)] = 1_000_000
    parallel_tables: Annotated[int, Field(ge=1, le=64)] = 4
    strategy: Strategy = "split"
    changelog: bool = True
    on_bad_event: OnBadEvent = "quarantine"
    keyless: Keyless = "identity"


class SparkConfig(Section):
    """`[spark]`: where the engine runs. `conf` goes to the session as it stands."""

    master: Annotated[str, Field(min_length=1)] = "local[*]"
    driver_memory: Annotated[str, Field(pattern=r"^[1-9][0-9]*[kmgKMG]$")] = "3g"
    conf: dict[str, OptionValue] = {}

    def session_conf(self) -> dict[str, str]:
        """`conf` with secrets included: never log them."""
        return reveal_all(self.conf)


class MaskConfig(Section):
    """What stands in place of a masked column's values: one of three."""

    text: str | None = None
    keep_last: Annotated[int, Field(ge=1)] | None = None
    null: Literal[True] | None = None

    @model_validator(mode="after")
    def _one(self) -> Self:
        if [self.text, self.keep_last, self.null].count(None) != 2:
            raise ValueError('give one of { text = "***" }, { keep_last = 4 }, { null = true }')
        return self

    def mask(self) -> Mask:
        """The rule that it means."""
        if self.text is not None:
            return FixedText(self.text)
        return Blank() if self.keep_last is None else KeepLast(self.keep_last)


class ColumnsConfig(Section):
    """Which columns are mirrored, and which are masked or hashed before anything is written.

    Names of columns, in which * and ? stand for any letters, in any letter case.
    """

    include: tuple[ColumnPattern, ...] = ()
    exclude: tuple[ColumnPattern, ...] = ()
    hash: tuple[ColumnPattern, ...] = ()
    mask: dict[ColumnPattern, MaskConfig] = {}

    @model_validator(mode="after")
    def _one_rule_each(self) -> Self:
        seen: set[str] = set()
        for pattern in (*self.exclude, *self.hash, *self.mask):
            if pattern.casefold() in seen:
                raise ValueError(f'"{pattern}" stands under two of exclude, hash and mask; keep one')
            seen.add(pattern.casefold())
        return self

    @property
    def has_rules(self) -> bool:
        return bool(self.include or self.exclude or self.hash or self.mask)


class MirrorColumnsConfig(ColumnsConfig):
    """`[columns]`: the rules for columns of all tables, and the key of all hashes."""

    hash_key: Secret | None = None


class SchemaChangesConfig(Section):
    """`[schema_changes]`: what a change of the source's tables does, by kind; None: as for the whole mirror.

    evolve follows it, ignore leaves the lake as it is, fail pauses the table.
    """

    add: Policy | None = None
    drop: Policy | None = None
    rename: Policy | None = None
    order: Policy | None = None
    type: Literal["evolve", "fail"] | None = None
    key: Literal["evolve", "fail"] | None = None
    recreate: Literal["evolve", "fail"] | None = None

    def policies(self) -> dict[ChangeKind, Policy]:
        """Those that are set."""
        kinds: tuple[ChangeKind, ...] = ("add", "drop", "rename", "order", "type", "key", "recreate")
        return {kind: policy for kind in kinds if (policy := getattr(self, kind)) is not None}


class TableConfig(Section):
    """`[[table]]`: what differs for one table."""

    name: TableName
    partition: tuple[Partition, ...] = ()
    key: tuple[str, ...] = ()
    strategy: Strategy | None = None
    changelog: bool | None = None
    on_bad_event: OnBadEvent | None = None
    columns: ColumnsConfig = ColumnsConfig()
    keyless: Keyless | None = None
    schema_changes: SchemaChangesConfig = SchemaChangesConfig()
    properties: dict[str, str] = {}


@dataclass(frozen=True, slots=True)
class TableOptions:
    """Everything that is configured for one table, with the defaults of `[apply]` filled in."""

    name: str
    partition: tuple[PartitionField, ...]
    key: tuple[str, ...]
    strategy: Strategy
    changelog: bool
    on_bad_event: OnBadEvent
    columns: ColumnsConfig
    keyless: Keyless
    schema_changes: Mapping[ChangeKind, Policy]
    properties: Mapping[str, str]


def _loses(name: str, rules: ColumnsConfig) -> bool:
    """Whether a column would be left out or masked."""
    masks = tuple((pattern, mask.mask()) for pattern, mask in rules.mask.items() if name not in rules.hash)
    found = RuleSet(rules.include, rules.exclude, masks=masks)
    return found.leaves_out(name) or found.shield(name) is not None


class Config(Section):
    """One mirror's whole configuration."""

    mirror: MirrorConfig
    source: SourceConfig
    log: Annotated[KafkaLog | ArchiveLog, Field(discriminator="kind")]
    lake: LakeConfig
    apply: ApplyConfig = ApplyConfig()
    schema_changes: SchemaChangesConfig = SchemaChangesConfig()
    spark: SparkConfig = SparkConfig()
    columns: MirrorColumnsConfig = MirrorColumnsConfig()
    tables: Annotated[tuple[TableConfig, ...], Field(alias="table")] = ()

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if isinstance(self.log, KafkaLog) and self.source.url is None:
            raise ValueError('source.url is required with log.kind = "kafka"')
        names = [table.name for table in self.tables]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f'[[table]] "{name}" stands twice; keep one')
            if not self.source.includes(name):
                raise ValueError(f'[[table]] "{name}" is not among source.tables, so it would have no effect')
            options = self.table(name)
            if options.keyless == "changelog" and not options.changelog:
                raise ValueError(
                    f'[[table]] "{name}" has keyless = "changelog" and changelog = false; keep one'
                )
        if self.apply.keyless == "changelog" and not self.apply.changelog:
            raise ValueError('[apply] has keyless = "changelog" and changelog = false; keep one')
        self._check_columns()
        return self

    def _check_columns(self) -> None:
        hashes = [*self.columns.hash, *(pattern for table in self.tables for pattern in table.columns.hash)]
        if hashes and self.columns.hash_key is None:
            raise ValueError(
                f'column "{hashes[0]}" is to be hashed, but there is no key for it; '
                'set hash_key = { env = "NAME" } in [columns]'
            )
        for table in self.tables:
            for name in table.key:
                if _loses(name, table.columns) or _loses(name, self.columns):
                    raise ValueError(
                        f'[[table]] "{table.name}": column "{name}" is in the key, so it cannot be left out or masked; '
                        "hash it instead"
                    )

    def includes(self, table: str) -> bool:
        """Whether `database.table` is mirrored."""
        return self.source.includes(table)

    def table(self, table: str) -> TableOptions:
        """What is configured for `database.table`, whether or not it has a section of its own."""
        own = next((section for section in self.tables if section.name == table), TableConfig(name=table))
        return TableOptions(
            name=table,
            partition=own.partition,
            key=own.key,
            strategy=own.strategy or self.apply.strategy,
            changelog=self.apply.changelog if own.changelog is None else own.changelog,
            on_bad_event=own.on_bad_event or self.apply.on_bad_event,
            columns=own.columns,
            keyless=own.keyless or self.apply.keyless,
            schema_changes=self.schema_changes.policies() | own.schema_changes.policies(),
            properties=own.properties,
        )
