"""Define the sections of the configuration, one class each; `models` joins them to the whole."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self, get_args

from pydantic import AfterValidator, Field, field_validator, model_validator

from replicator.config.paths import LocalPath, Location
from replicator.config.secrets import OptionValue, Secret, SecretRef, refuse_literal_secrets, reveal_all
from replicator.config.values import (
    NAME,
    ColumnPattern,
    Duration,
    ReplicaUrl,
    Section,
    Size,
    TablePattern,
    parse_duration,
)
from replicator.model.transforms import Blank, FixedText, KeepLast, Mask
from replicator.schema.evolution.changes import ChangeKind, Policy, UnloggedPolicy

_SASL_MODULES = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}
_TRANSLATED = ("sasl.username", "sasl.password", "sasl.mechanisms", "ssl.ca.location")


def java_client_options(options: Mapping[str, str]) -> dict[str, str]:
    """Return the Java client's settings for librdkafka's `options`; names that both clients share are kept."""
    java = {name: value for name, value in options.items() if name not in _TRANSLATED}
    mechanism = options.get("sasl.mechanism") or options.get("sasl.mechanisms")
    if mechanism is not None:
        java["sasl.mechanism"] = mechanism
    if "sasl.username" in options and mechanism in _SASL_MODULES:
        user, password = _quoted(options["sasl.username"]), _quoted(options.get("sasl.password", ""))
        java["sasl.jaas.config"] = f"{_SASL_MODULES[mechanism]} required username={user} password={password};"
    if "ssl.ca.location" in options:
        java["ssl.truststore.type"] = "PEM"
        java["ssl.truststore.location"] = options["ssl.ca.location"]
    return java


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


class BootstrapConfig(Section):
    """`[bootstrap]`: who reads the rows that a table has when it is mirrored first, and how the mirror reads tables.

    `by` is None if it is not set: see `Config.reads_new_tables`.

    Attributes:
        max_replica_lag: seconds; while a replica is further behind, no rows are read; None for no limit.
        replica_urls: the replicas that count, besides the source if it is one.
        replica_password: their password; None for that of the source.
    """

    by: Literal["mirror", "connector"] | None = None
    parallel_tables: Annotated[int, Field(ge=1, le=32)] = 2
    chunk_rows: Annotated[int, Field(ge=1)] = 250_000
    max_rows_per_second: Annotated[int, Field(ge=1)] | None = None
    max_replica_lag: Duration | None = None
    replica_urls: tuple[ReplicaUrl, ...] = ()
    replica_password: Secret | None = None

    @model_validator(mode="after")
    def _has_effect(self) -> Self:
        if self.replica_urls and self.max_replica_lag is None:
            raise ValueError(
                'replica_urls has no effect without max_replica_lag; set it, as in max_replica_lag = "5 seconds"'
            )
        if self.replica_password is not None and not self.replica_urls:
            raise ValueError("replica_password has no effect without replica_urls; remove it")
        return self


class HealConfig(Section):
    """`[heal]`: whether the mirror reads a table again if the log cannot tell what its rows are.

    Attributes:
        mode: "auto" reads it again at once, "ask" waits for `replicator heal`.
        max_rows: a table with more rows is not read without a command; None for no limit.
        min_interval: seconds after a re-read of a table before it is read again for the same cause without a
            command; its first copy does not count.
    """

    mode: Literal["auto", "ask"] = "auto"
    max_rows: Annotated[int, Field(ge=1)] | None = None
    min_interval: Duration = 3600.0


Unlisted = Literal["allow", "pause"]


class MaskConfig(Section):
    """The replacement for a masked column's values: exactly one of three."""

    text: str | None = None
    keep_last: Annotated[int, Field(ge=1)] | None = None
    null: Literal[True] | None = None

    @model_validator(mode="after")
    def _one(self) -> Self:
        if [self.text, self.keep_last, self.null].count(None) != 2:
            raise ValueError('give one of { text = "***" }, { keep_last = 4 }, { null = true }')
        return self

    def mask(self) -> Mask:
        """Return the mask that the section defines."""
        if self.text is not None:
            return FixedText(self.text)
        return Blank() if self.keep_last is None else KeepLast(self.keep_last)


class ColumnsConfig(Section):
    """Which columns are mirrored, and which are masked or hashed before anything is written.

    Column names, in which * and ? match any letters, regardless of letter case. A table with `unlisted = "pause"`
    pauses if it has a column that no list names; `include` then excludes no other column.
    """

    include: tuple[ColumnPattern, ...] = ()
    exclude: tuple[ColumnPattern, ...] = ()
    hash: tuple[ColumnPattern, ...] = ()
    mask: Mapping[ColumnPattern, MaskConfig] = {}
    unlisted: Unlisted | None = None

    @model_validator(mode="after")
    def _one_rule_each(self) -> Self:
        seen: set[str] = set()
        for pattern in (*self.exclude, *self.hash, *self.mask):
            if pattern.casefold() in seen:
                raise ValueError(f'"{pattern}" appears in two of exclude, hash and mask; keep one')
            seen.add(pattern.casefold())
        return self

    @property
    def has_rules(self) -> bool:
        return bool(self.include or self.exclude or self.hash or self.mask)


class MirrorColumnsConfig(ColumnsConfig):
    """`[columns]`: the column rules for all tables, and the key for all hashes."""

    hash_key: Secret | None = None


APICURIO_API: Final = "/apis/ccompat/"
"""Part of the URL of Apicurio's Confluent-compatible API."""


class KafkaLog(Section):
    """`[log] kind = "kafka"`: Debezium's topics.

    `options` are librdkafka's names (`security.protocol`, `sasl.username`, …), given once for both clients: the
    Spark side receives their Java counterparts. `connect` uses `schemas`, `partitions`, `transactions` and
    `connect_url`. With `transactions`, events without numbers may be ones of compressed transactions. `allow_lossy`
    names options of the connector that may lose data. `registry_url` is a schema registry's Confluent-compatible API,
    for `format = "avro"`. With `flattened`, events are rows from ExtractNewRecordState instead of envelopes. `archive`
    is a recorded archive of the same topics: events that Kafka has deleted are read from it.
    """

    kind: Literal["kafka"]
    bootstrap_servers: Annotated[str, Field(min_length=1)]
    topic_prefix: Annotated[str, Field(pattern=NAME)]
    format: Literal["json", "avro"] = "json"
    registry_url: Annotated[str, Field(pattern=r"^https?://")] | None = None
    registry_user: Annotated[str, Field(min_length=1)] | None = None
    registry_password: Secret | None = None
    flattened: bool = False
    schemas: bool = False
    partitions: Annotated[int, Field(ge=1)] = 1
    transactions: bool = False
    # It may have a login.
    connect_url: Annotated[str, Field(pattern=r"^https?://")] | None = Field(default=None, repr=False)
    archive: Location | None = None
    allow_lossy: tuple[str, ...] = ()
    options: Mapping[str, OptionValue] = {}

    @field_validator("options")
    @classmethod
    def _known_places(cls, options: Mapping[str, str | SecretRef]) -> Mapping[str, str | SecretRef]:
        refuse_literal_secrets(options)
        if "bootstrap.servers" in options:
            raise ValueError('"bootstrap.servers" has its own key: log.bootstrap_servers')
        return options

    @field_validator("registry_url")
    @classmethod
    def _no_login(cls, url: str | None) -> str | None:
        if url is not None and "@" in url.split("/")[2]:
            raise ValueError(
                "contains a login; remove it and set registry_user and registry_password = { env = … }"
            )
        return url

    @model_validator(mode="after")
    def _registry_fits(self) -> Self:
        if self.format == "avro" and self.registry_url is None:
            raise ValueError('registry_url is required with format = "avro"')
        if self.format == "avro" and self.schemas:
            raise ValueError('schemas has no effect with format = "avro"; remove it')
        if (self.registry_user is None) != (self.registry_password is None):
            raise ValueError("registry_user and registry_password must be set together")
        if self.registry_user is not None and self.registry_url is None:
            raise ValueError('registry_user has no effect with format = "json"; remove it')
        return self

    @property
    def registry_is_apicurio(self) -> bool:
        """Whether the registry is Apicurio's, judged by its URL; `connect` then configures Apicurio's converter."""
        return APICURIO_API in (self.registry_url or "")

    @property
    def nulls_are_lost(self) -> bool:
        """Whether the converter writes the default of a nullable column in place of NULL.

        Apicurio's converter always does; `connect` configures the others not to. `allow_lossy` permits it by the name
        of the setting that selects the converter.
        """
        return self.format == "avro" and self.registry_is_apicurio

    @property
    def defaults_are_accepted(self) -> bool:
        """Whether `allow_lossy` permits defaults in place of NULL."""
        return "value.converter" in self.allow_lossy

    def registry_login(self) -> tuple[str, str] | None:
        """Return the user and password of the registry: never log them. Raises ConfigError if the secret is missing."""
        if self.registry_user is None or self.registry_password is None:
            return None
        return self.registry_user, self.registry_password.reveal().get_secret_value()

    def client_options(self) -> dict[str, Any]:
        """Return the settings for a confluent-kafka client, secrets included: never log them."""
        return {"bootstrap.servers": self.bootstrap_servers, **reveal_all(self.options)}

    def spark_options(self) -> dict[str, str]:
        """Return the same settings for Spark's Kafka source, each prefixed with `kafka.`; secrets included."""
        return {f"kafka.{name}": value for name, value in java_client_options(self.client_options()).items()}


class ArchiveLog(Section):
    """`[log] kind = "archive"`: a recorded event archive. `topic_prefix` defaults to the manifest's."""

    kind: Literal["archive"]
    path: Location
    topic_prefix: Annotated[str, Field(pattern=NAME)] | None = None
    flattened: bool = False


def _at_least(least: str, why: str = "") -> AfterValidator:
    """Return a validator of a time in seconds that must not be shorter than `least`, such as "1 hour"."""

    def check(seconds: float) -> float:
        if seconds < parse_duration(least):
            raise ValueError(f'must be at least "{least}"{why}')
        return seconds

    return AfterValidator(check)


class MaintenanceConfig(Section):
    """`[maintenance]`: when files are merged, and when snapshots and orphan files are deleted.

    Times are in seconds, sizes in bytes. `max_share` is the part of the time that it takes at most while batches follow
    each other without a pause.
    """

    enabled: bool = True
    merge_files: Annotated[int, Field(ge=2)] = 10
    target_file_size: Size = 128_000_000
    delete_ratio: Annotated[float, Field(gt=0, le=1)] = 0.1
    max_snapshots: Annotated[int, Field(ge=1)] = 1000
    snapshot_age: Duration = 5 * 86_400.0
    orphan_age: Annotated[
        Duration,
        _at_least("1 hour", ": files of a running batch have no snapshot yet, and must not be deleted"),
    ] = 3 * 86_400.0
    slice_time: Duration = 0.5
    slice_bytes: Size = 500_000_000
    max_share: Annotated[float, Field(gt=0, le=1)] = 0.25
    max_lag: Duration = 60.0


class TableMaintenanceConfig(Section):
    """`[[table]] maintenance`: settings of `[maintenance]` for one table; None means the value of `[maintenance]`."""

    enabled: bool | None = None
    merge_files: Annotated[int, Field(ge=2)] | None = None
    target_file_size: Size | None = None
    delete_ratio: Annotated[float, Field(gt=0, le=1)] | None = None
    max_snapshots: Annotated[int, Field(ge=1)] | None = None
    snapshot_age: Duration | None = None


class SectionError(ValueError):
    """A section is wrong beside the others.

    Attributes:
        location: the path of the wrong key in the file.
    """

    def __init__(self, message: str, *location: int | str) -> None:
        super().__init__(message)
        self.location = location


class TableSectionError(SectionError):
    """A `[[table]]` section is wrong, or one with another name."""

    def __init__(self, message: str, index: int, key: str, section: str = "table") -> None:
        super().__init__(message, section, index, key)


class TagsConfig(Section):
    """`[tags]`: how often all tables are tagged at one source position, and how many of these tags are kept.

    `every` is in seconds; None means only on request.
    """

    every: (
        Annotated[Duration, _at_least("1 minute", ": each tag adds a commit to every lake table")] | None
    ) = None
    keep: Annotated[int, Field(ge=1)] = 24


class SchemaChangesConfig(Section):
    """`[schema_changes]`: the policy for each kind of schema change; None inherits the mirror's policy.

    evolve applies the change, ignore leaves the lake unchanged, fail pauses the table. After changes of rows that no
    event has, reread reads the table again if `[heal]` allows it, follow deletes the rows of dropped and truncated
    partitions if it can and otherwise does as reread, keep leaves the lake's rows, pause pauses the table.
    """

    add: Policy | None = None
    drop: Policy | None = None
    rename: Policy | None = None
    order: Policy | None = None
    type: Literal["evolve", "fail"] | None = None
    key: Literal["evolve", "fail"] | None = None
    recreate: Literal["evolve", "fail"] | None = None
    unlogged: UnloggedPolicy | None = None

    def policies(self) -> dict[ChangeKind, Policy | UnloggedPolicy]:
        """Return the policies that are set."""
        return {kind: policy for kind in get_args(ChangeKind) if (policy := getattr(self, kind)) is not None}


class PipelinesConfig(Section):
    """`[pipelines]`: the folder of the files of pipelines, and how often their results are refreshed.

    Attributes:
        every: seconds between refreshes; a pipeline may say otherwise.
        check_every: seconds between two comparisons of a result with its query; None means only on request.
        on_difference: "report" logs it, "repair" also corrects the result.
    """

    folder: Annotated[LocalPath, Field(default="pipelines", validate_default=True)]
    every: Duration = 10.0
    check_every: (
        Annotated[Duration, _at_least("1 minute", ": each check computes a result as a whole")] | None
    ) = None
    on_difference: Literal["report", "repair"] = "report"

    def files(self) -> list[Path]:
        """Return the files of pipelines, sorted by name; none if there is no folder."""
        return sorted(file for file in self.folder.glob("*") if file.suffix in (".sql", ".py"))


class VerifyConfig(Section):
    """`[verify]`: how often the mirror compares its tables with the source, and what follows from a difference.

    Without the section, `DEFAULT_VERIFY` applies.

    Attributes:
        enabled: whether a running mirror compares anything: recently changed rows, and tables as `every` says.
        every: seconds between two checks of a table as a whole; None means only by `replicator verify`.
        on_difference: "report" logs it, "repair" also reads the table again from the source, where rows differ.
        max_rows_per_second: the source is read at this rate at most.
        exclude: patterns of tables that are not checked on schedule.
    """

    enabled: bool = True
    every: Annotated[Duration, _at_least("1 minute")] | None = None
    on_difference: Literal["report", "repair"] = "report"
    max_rows_per_second: Annotated[int, Field(ge=1)] = 100_000
    exclude: tuple[TablePattern, ...] = ()


DEFAULT_VERIFY: Final = VerifyConfig.model_validate(
    {"every": "1 day", "on_difference": "repair", "max_rows_per_second": 400}
)
"""What applies without the section: each table about once a day, and 100 recently changed rows a second in addition."""


def check_history(table: str, log: KafkaLog | ArchiveLog, *, changelog: bool) -> None:
    """Check that the history of a table can be written.

    Raises:
        ValueError: it cannot.
    """
    if not changelog:
        raise ValueError(
            f'[[table]] "{table}" has a history and changelog = false; a history is written from the changelog'
        )
    if isinstance(log, KafkaLog) and log.connect_url is None:
        raise ValueError(
            f'[[table]] "{table}" has a history, which needs log.connect_url: only Kafka Connect knows where '
            "transactions end"
        )
