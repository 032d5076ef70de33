"""Build the settings of a mirror's Debezium connector, and the client of its Kafka Connect worker.

The settings come from `connectors/mysql.json`, which holds the settings that prevent data loss, and from the mirror's
configuration. They contain passwords: they are sent to Kafka Connect and never written or logged.
"""

import hashlib
import json
import re
from collections.abc import Collection, Iterable, Mapping
from string import Template
from typing import Any, Final

from replicator.config import Config, KafkaLog
from replicator.config.paths import resource
from replicator.config.sections import APICURIO_API, java_client_options
from replicator.errors import ConfigError
from replicator.model.common import literal_regex, to_regex
from replicator.model.table import TableId
from replicator.sources.connector.connect import KafkaConnect

TEMPLATE = "connectors/mysql.json"
_CONVERTERS = "connectors/converters.json"
_FLATTENED = "connectors/flattened.json"
_RETRIABLE = (
    "(?s).*(Failed to read (next|remaining)|[Cc]ommunications link failure|Connection (refused|reset)|Broken pipe"
    "|Read timed out|Connect timed out|Server shutdown|shutting down|Lost connection"
    "|Unable to connect to the database|Timed out after|Table definition has changed, please retry transaction).*"
)
"""Errors after which the connector restarts by itself: lost connections, and DDL during the initial snapshot.

Debezium 3.6's own list of such errors has no effect for MySQL: `MySqlErrorHandler.isRetriable` follows the causes to
the last one and then tests whether null can be retried. Do not add errors that do not pass with time: a connector
that retries is reported as RUNNING.
"""

SKIP_STATEMENTS: Final = {"schema.history.internal.skip.unparseable.ddl": "true"}
"""The setting that lets the connector skip a statement that its parser does not understand, instead of failing.

The mirror compares the definitions with those of the source, so a skipped statement of one of its tables is noticed.
"""

ONLY_CAPTURED: Final = {"schema.history.internal.store.only.captured.tables.ddl": "true"}
"""The setting with which the connector reads no definitions of other tables.

Without it, a table that cannot be opened, such as a MERGE table without its tables, fails it, in any database.
"""

SKIP_EVENTS: Final = {"event.processing.failure.handling.mode": "warn"}
"""The setting with which the connector sends 1970-01-01 for a date that it cannot read, instead of failing.

It then also leaves out events that it cannot process, and does not tell which.
"""

FAIL_AT_EVENTS: Final = dict.fromkeys(SKIP_EVENTS, "fail")
"""The usual setting instead of `SKIP_EVENTS`."""

_SET_ASIDE: Final = "replicator.set.aside"
"""A setting of the mirror's own, which Kafka Connect keeps: the tables that the connector leaves out for some time."""
_TABLES: Final = "table.include.list"

_SECRET = re.compile(r"password|secret|token|user\.info|sasl\.jaas")
_SHORT = 3
"""Secrets of up to this many characters are not redacted, since they may occur in any text."""


def connector_config(config: Config) -> dict[str, str]:
    """Return all settings of this mirror's connector, secrets included: never log them.

    Raises ConfigError if the mirror reads an archive or a secret is missing.
    """
    log = kafka_log(config)
    server = config.source.server()
    password = config.source.password.reveal().get_secret_value() if config.source.password else ""
    selection = table_selection(config)
    values = {
        "topic_prefix": log.topic_prefix,
        "topic_prefix_pattern": f"^{literal_regex(log.topic_prefix)}$",
        "heartbeat_pattern": f"^{literal_regex(f'__debezium-heartbeat.{log.topic_prefix}')}$",
        "retriable": _RETRIABLE,
        "host": server.host,
        "port": str(server.port),
        "user": server.user,
        "password": password,
        "server_id": str(_server_id(log.topic_prefix)),
        "databases": selection["database.include.list"],
        "tables": selection["table.include.list"],
        "partitions": str(log.partitions),
        "bootstrap_servers": log.bootstrap_servers,
    }
    template: dict[str, str] = json.loads(resource(TEMPLATE).read_text())
    settings = {name: Template(value).substitute(values) for name, value in template.items()}
    if config.source.ssl_mode != "preferred":
        settings["database.ssl.mode"] = config.source.ssl_mode
    if config.reads_new_tables:
        settings["snapshot.mode"] = "no_data"
    if log.transactions:
        settings["provide.transaction.metadata"] = "true"
    if table := config.source.signal_table:
        settings["signal.data.collection"] = table
    if keys := selection["message.key.columns"]:
        settings["message.key.columns"] = keys
    if log.flattened:
        settings |= json.loads(resource(_FLATTENED).read_text())
    return settings | _converters(log) | _history_clients(log)


def table_selection(config: Config) -> dict[str, str]:
    """Return the settings that tell which tables the connector reads, and their keys; "" for one that is not set.

    They contain no secret, and need none.
    """
    patterns, signals = config.source.tables, config.source.signal_table
    databases = dict.fromkeys(to_regex(name) for p in patterns for name in _databases(p))
    tables = table_patterns(patterns, config.source.exclude)
    if signals:
        # A signal is a row of a table that the connector reads.
        tables += "," + literal_regex(signals)
        databases[literal_regex(signals.split(".", 1)[0])] = None
    return {
        "database.include.list": ",".join(databases),
        "table.include.list": tables,
        "message.key.columns": _message_keys(config),
    }


def differing_selection(config: Config, options: Mapping[str, str]) -> list[str]:
    """Return the settings of `table_selection` that differ from a connector's `options`, which may set tables aside."""
    wanted, given = table_selection(config), setting_aside(options, ())
    return [name for name, value in wanted.items() if given.get(name, "") != value]


def set_aside(options: Mapping[str, str]) -> frozenset[TableId]:
    """Return the tables that a connector with these settings leaves out for some time; see `setting_aside`."""
    return frozenset(TableId(*name) for name in _aside(options)["tables"])


def setting_aside(options: Mapping[str, str], tables: Collection[TableId]) -> dict[str, str]:
    """Return settings with which a connector leaves out `tables`. It takes in again what it left out before."""
    if _SET_ASIDE not in options and not tables:
        return dict(options)
    listed = _aside(options)["list"]
    settings = {name: value for name, value in options.items() if name != _SET_ASIDE} | {_TABLES: listed}
    if names := sorted(tables):
        settings[_SET_ASIDE] = json.dumps({"tables": [[t.database, t.name] for t in names], "list": listed})
        without = "|".join(literal_regex(str(table)) for table in names)
        # As in `table_patterns`. A comma that separates items has no backslash before it.
        items = re.split(r"(?<!\\),", listed)
        settings[_TABLES] = ",".join(f"(?!(?-i:{without})$){item}" for item in items)
    return settings


def _aside(options: Mapping[str, str]) -> Mapping[str, Any]:
    found: Mapping[str, Any] = json.loads(options.get(_SET_ASIDE, "null")) or {
        "tables": [],
        "list": options.get(_TABLES, ".*"),
    }
    return found


def _converters(log: KafkaLog) -> dict[str, str]:
    """Return the settings that control how keys and values are encoded."""
    settings = json.loads(resource(_CONVERTERS).read_text())[_converter_name(log)]
    login = log.registry_login()
    if login is None:
        settings = {name: value for name, value in settings.items() if "auth." not in name}
    user, password = login or ("", "")
    values = {
        "schemas": "true" if log.schemas else "false",
        "registry": log.registry_url or "",
        "registry_root": (log.registry_url or "").partition(APICURIO_API)[0],
        "user": user,
        "password": password,
    }
    return {name: Template(value).substitute(values) for name, value in settings.items()}


def _converter_name(log: KafkaLog) -> str:
    """Return the name of the converter for the log's format: each registry works best with its own converter."""
    if log.format == "json":
        return "json"
    return "avro-apicurio" if log.registry_is_apicurio else "avro-confluent"


def kafka_log(config: Config) -> KafkaLog:
    if not isinstance(config.log, KafkaLog):
        raise ConfigError('log.kind is "archive"; a connector writes to Kafka', 'set log.kind = "kafka"')
    return config.log


def table_patterns(include: Iterable[str], exclude: Iterable[str] = ()) -> str:
    """Return Debezium's `table.include.list` for `database.table` patterns with `*` and `?`.

    Debezium accepts either an include list or an exclude list, so exclusions become a lookahead. It ignores letter
    case; the lookahead does not, so that it excludes no table of another spelling.
    """
    without = "|".join(map(to_regex, exclude))
    return ",".join((f"(?!(?-i:{without})$)" if without else "") + to_regex(pattern) for pattern in include)


def _databases(pattern: str) -> list[str]:
    """Return the possible databases of a pattern: if a name has dots, any of them may separate database and table."""
    parts = pattern.split(".")
    return [".".join(parts[:i]) for i in range(1, len(parts))]


def _server_id(topic_prefix: str) -> int:
    """Return the connector's id as a replica of MySQL: constant per prefix, unlikely to equal another prefix's id."""
    digest = hashlib.sha256(topic_prefix.encode()).digest()
    return 100_000 + int.from_bytes(digest[:4]) % 2_000_000_000


def _message_keys(config: Config) -> str:
    """Return the keys that the configuration gives to tables, as Debezium's `message.key.columns`."""
    return ";".join(
        f"{literal_regex(table.name)}:{','.join(table.key)}" for table in config.tables if table.key
    )


def _history_clients(log: KafkaLog) -> dict[str, str]:
    """Return the settings of the schema history's own Kafka clients, which need the same security settings."""
    options = {name: value for name, value in log.client_options().items() if name != "bootstrap.servers"}
    java = java_client_options(options)
    return {
        f"schema.history.internal.{client}.{name}": value
        for client in ("producer", "consumer")
        for name, value in java.items()
    }


def connect_client(config: Config) -> KafkaConnect | None:
    """Return the client of the configured Kafka Connect; None if none is configured or the log is an archive."""
    if not isinstance(config.log, KafkaLog) or config.log.connect_url is None:
        return None
    try:
        secrets = secrets_in(connector_config(config))
    except ConfigError:
        # Only `connect` needs all secrets; a secret that this process cannot read, it cannot leak either.
        secrets = []
    return KafkaConnect(config.log.connect_url, secrets, patience=10)


def secrets_in(settings: Mapping[str, str]) -> list[str]:
    """Return the values that no message may contain."""
    found = {value for name, value in settings.items() if _SECRET.search(name)}
    # A login in one setting, as user:password.
    found |= {value.partition(":")[2] for name, value in settings.items() if name.endswith("user.info")}
    return [value for value in found if len(value) > _SHORT]
