"""Serve binary log files with a MySQL server of its own, and let Debezium write their events to a broker of its own."""

import shutil
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

import pymysql
from pymysql.connections import Connection

from replicator.config import ArchiveLog, Config, KafkaLog, SourceUrl
from replicator.errors import BinlogError, StackError
from replicator.model.binlog import ConnectorOffset
from replicator.model.common import quoted
from replicator.model.gtid import NO_GTIDS
from replicator.model.position import binlog_number
from replicator.operations.binlog.definitions import Definitions
from replicator.operations.stack import Endpoints, LocalStack, Options
from replicator.operations.stack.client import connect_as_root
from replicator.operations.stack.mysql_program import series
from replicator.sources.binlog.scan import BinlogFile
from replicator.sources.connector.connect import KafkaConnect
from replicator.sources.connector.settings import connector_config, secrets_in
from replicator.sources.connector.state import failure_hint, lost_binlog

CONNECTOR: Final = "binlog-import"
STUCK_S: Final = 300.0
"""How long the connector may take for one transaction."""
_POLL_S: Final = 0.5
_FIRST_POSITION: Final = 4


@dataclass(frozen=True, slots=True)
class ScratchFolder:
    """The folder of an import: links to the files, and the servers' data. It can be deleted when no import runs."""

    path: Path

    @property
    def binlogs(self) -> Path:
        return self.path / "binlogs"

    @property
    def index(self) -> Path:
        return self.path / "binlogs.index"

    @property
    def stack(self) -> Path:
        return self.path / "stack"

    def prepare(self, files: Iterable[BinlogFile]) -> None:
        """Lay out the files for a server, which must not write to them.

        The server opens all but the last one for reading only. To the last one it may write when it starts: it removes
        an incomplete transaction from the end. So that one is copied.

        Raises:
            BinlogError: the files cannot be linked or copied.
        """
        names: list[str] = []
        try:
            self.binlogs.mkdir(parents=True, exist_ok=True)
            *complete, last = files
            for file in complete:
                target = self.binlogs / file.name
                if target.absolute() != file.path.absolute():
                    target.symlink_to(file.path.absolute())
                names.append(str(target))
            target = self.binlogs / last.name
            if target.absolute() != last.path.absolute():
                shutil.copyfile(last.path, target)
            target.chmod(0o600)
            names.append(str(target))
            self.index.write_text("".join(f"{name}\n" for name in names))
        except OSError as error:
            raise BinlogError(f"cannot use {self.path}: {error.strerror}", "free some space there") from error


def server_arguments(folder: ScratchFolder, files: tuple[BinlogFile, ...]) -> tuple[str, ...]:
    """Return the arguments of a MySQL server that serves the files."""
    # A server with GTIDs does not serve transactions without, nor one without GTIDs those with.
    mode = "ON" if any(file.gtids for file in files) else "OFF"
    base = files[0].name.rpartition(".")[0]
    return (
        f"--log-bin={folder.binlogs.absolute() / base}",
        f"--log-bin-index={folder.index.absolute()}",
        f"--gtid-mode={mode}",
        f"--enforce-gtid-consistency={mode}",
        "--loose-source-verify-checksum=ON",
    )


class Scratch:
    """The servers of an import. As a context manager, it starts them, and removes them with their data at the end."""

    def __init__(self, folder: ScratchFolder, files: tuple[BinlogFile, ...], mysql: str = "") -> None:
        self._folder = folder
        self._files = files
        options = Options(mysql=mysql, mysql_arguments=server_arguments(folder, files))
        self._stack = LocalStack(folder.stack, options)

    def __enter__(self) -> Self:
        try:
            self._folder.prepare(self._files)
            self._check_version(self._stack.up())
        except BaseException:
            self._remove()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._remove()

    def _remove(self) -> None:
        self.remove_folder(self._folder)

    @staticmethod
    def remove_folder(folder: ScratchFolder) -> None:
        """Stop the servers of a folder, also those that an import left which was killed, and delete it."""
        if folder.path.exists():
            LocalStack(folder.stack).remove()
            shutil.rmtree(folder.path, ignore_errors=True)

    def _check_version(self, endpoints: Endpoints) -> None:
        written = max((file.version for file in self._files), key=_numbers)
        if _numbers(series(endpoints.mysql_version)) < _numbers(series(written)):
            raise StackError(
                f"MySQL {endpoints.mysql_version}, which serves the files, is older than {written}, which wrote them",
                f"install MySQL {series(written)} or newer so that mysqld is on PATH",
            )

    @property
    def endpoints(self) -> Endpoints:
        """Return the addresses of the servers."""
        return self._stack.endpoints

    def define(self, definitions: Definitions) -> None:
        """Create the tables that exist before the first file, without writing that to the binary log.

        Raises:
            BinlogError: a definition is refused.
        """
        with connect_as_root(self.endpoints) as connection, connection.cursor() as cursor:
            cursor.execute("SET SESSION sql_log_bin = 0")
            cursor.execute("SET SESSION sql_mode = 'NO_ENGINE_SUBSTITUTION', foreign_key_checks = 0")
            self._use_collation(connection)
            if (database := definitions.default_database) is not None:
                cursor.execute(f"CREATE DATABASE IF NOT EXISTS {quoted(database)}")
                cursor.execute(f"USE {quoted(database)}")
            for statement in definitions.statements:
                try:
                    cursor.execute(statement)
                except pymysql.MySQLError as error:
                    raise BinlogError(
                        f"MySQL refused a definition: {error.args[-1]}",
                        f"correct it: {' '.join(statement.split())[:200]}",
                    ) from error

    def _use_collation(self, connection: Connection) -> None:
        """Give the server the default collation of the one that wrote the files: new databases have it."""
        number = next((file.collation for file in self._files if file.collation is not None), None)
        with connection.cursor() as cursor:
            cursor.execute("SELECT collation_name FROM information_schema.collations WHERE id = %s", [number])
            if (found := cursor.fetchone()) is not None:
                cursor.execute(
                    "SET GLOBAL collation_server = %s, SESSION collation_server = %s", [found[0]] * 2
                )

    def start_connector(self, config: Config) -> None:
        """Register the connector, which begins at the first event of the first file. Raises ConnectError."""
        settings = connector_settings(config, self.endpoints)
        beginning: dict[str, Any] = {"file": self._files[0].name, "pos": _FIRST_POSITION}
        if any(file.gtids for file in self._files):
            beginning["gtids"] = NO_GTIDS
        self._connect_client(settings).create_at(
            CONNECTOR, settings, {"server": settings["topic.prefix"]}, beginning
        )

    def positions(self, config: Config, patience: float = STUCK_S) -> Iterator[ConnectorOffset | None]:
        """Yield every half second how far all events are in the broker (None: unknown); end when they all are.

        Raises:
            BinlogError: the connector failed, or stopped making progress.
            ConnectError: Kafka Connect does not answer.
        """
        client = self._connect_client(connector_settings(config, self.endpoints))
        last = binlog_number(self._files[-1].name)
        known: Mapping[str, Any] | None = None
        moved = time.monotonic()
        while True:
            offset = client.offset(CONNECTOR)
            if offset != known:
                known, moved = offset, time.monotonic()
            at = None if offset is None else ConnectorOffset.from_json(offset)
            # The server begins a file of its own after the given ones.
            if at is not None and not at.in_snapshot and binlog_number(at.file) > last:
                return
            left = time.monotonic()
            yield at
            moved += time.monotonic() - left
            self._check_connector(client, time.monotonic() - moved, patience)
            time.sleep(_POLL_S)

    def _check_connector(self, client: KafkaConnect, idle: float, patience: float) -> None:
        state = client.state(CONNECTOR)
        if state is not None and state.failures:
            reason = state.failures[0]
            raise BinlogError(f"Debezium cannot read the files: {reason}", next_step(reason))
        if idle > patience:
            raise BinlogError(
                f"Debezium has not advanced for {patience:.0f} s",
                f"see {self._stack.log('connect')}, while this command runs",
            )

    def _connect_client(self, settings: Mapping[str, str]) -> KafkaConnect:
        return KafkaConnect(self.endpoints.connect_url, secrets_in(settings))


def next_step(reason: str) -> str:
    """Return what to do if Debezium cannot read the files, by its reason."""
    lower = reason.lower()
    if "schema isn't known" in lower or "internal schema representation" in lower:
        return "a definition does not fit the rows: give --definitions as of the first file"
    if "statement" in lower and "format" in lower:
        return "only changes that were logged as rows can be imported (binlog_format = ROW)"
    if "deserializing binlog data" in lower:
        return "import the files that follow the one with this value: no import can read it"
    if lost_binlog(reason):
        # The server has all files, but not the GTID at which the connector begins. Debezium looks for it when it is
        # started a second time.
        return "Kafka Connect started the connector a second time: repeat the command"
    return failure_hint(reason, restart="repeat the command")


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.partition("-")[0].split(".") if part.isdigit())


def scratch_config(config: Config, endpoints: Endpoints, *, compressed: bool = False) -> Config:
    """Return the mirror's configuration with the import's own servers; events are in JSON.

    If files are `compressed`, events are numbered: nothing else would distinguish them in a replay.
    """
    log = config.log
    own: dict[str, Any] = {"topic_prefix": topic_prefix(config), "flattened": log.flattened}
    if isinstance(log, KafkaLog):
        own |= {"schemas": log.schemas, "partitions": log.partitions, "transactions": log.transactions}
    if compressed:
        own["transactions"] = not log.flattened
    scratch = KafkaLog(
        kind="kafka", bootstrap_servers=endpoints.bootstrap_servers, connect_url=endpoints.connect_url, **own
    )
    server = SourceUrl(endpoints.mysql_user, endpoints.mysql_host, endpoints.mysql_port)
    # A signal in the files was for the connector of that time.
    source = config.source.model_copy(update={"url": server, "password": None, "signal_table": None})
    return config.model_copy(update={"source": source, "log": scratch})


def topic_prefix(config: Config) -> str:
    """Return the first part of the topics' names."""
    if isinstance(config.log, ArchiveLog):
        return config.log.topic_prefix or config.mirror.name
    return config.log.topic_prefix


def connector_settings(config: Config, endpoints: Endpoints) -> dict[str, str]:
    """Return the settings of the connector: those of the mirror's, but for the servers and the beginning.

    `config` is that of `scratch_config`. The settings contain a password: never log them.
    """
    return {
        **connector_config(config),
        "database.password": endpoints.mysql_password,
        # Read the definitions that the server has, and then the files from the given position.
        "snapshot.mode": "recovery",
        # A connector that restarts by itself may write events twice.
        "errors.max.retries": "0",
        # So may one that connects again, from the beginning of the transaction. The binlog client would do that as soon
        # as it has processed one event for longer than the interval. A lost connection fails the connector, or
        # ends its progress.
        "connect.keep.alive": "false",
        # The server's heartbeats, of 0.8 times this interval, tell that the end was reached.
        "connect.keep.alive.interval.ms": "1000",
        # Larger requests cost less.
        "producer.override.batch.size": str(128 << 10),
        "producer.override.linger.ms": "20",
        # A producer that sends a request again must not write its events twice.
        "producer.override.enable.idempotence": "true",
    }
