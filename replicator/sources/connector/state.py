"""The state of a connector, why it failed, and what to do about it. Pure: without a client of Kafka Connect."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

NO_REASON: Final = "no reason given"


@dataclass(frozen=True, slots=True)
class ConnectorState:
    """The state of a connector.

    Attributes:
        name: the connector's name.
        state: RUNNING, FAILED, PAUSED, STOPPED, UNASSIGNED or RESTARTING, of the connector itself.
        tasks: the state of each task, by its number.
        failures: why the connector or its tasks failed, one line each with the innermost cause.
        address: the URL of the connector in Kafka Connect; None if it is not known.
    """

    name: str
    state: str
    tasks: Mapping[int, str]
    failures: tuple[str, ...] = ()
    address: str | None = None

    @property
    def summary(self) -> str:
        """Return the worst state of the connector and its tasks."""
        found = {self.state, *self.tasks.values()}
        for word in ("FAILED", "STOPPED", "PAUSED", "RESTARTING", "UNASSIGNED"):
            if word in found:
                return word
        return "RUNNING" if self.tasks else "UNASSIGNED"


@dataclass(frozen=True, slots=True)
class Connector:
    """A registered connector: its state and its settings, which include passwords in plain text."""

    state: ConnectorState
    options: Mapping[str, str]

    @property
    def name(self) -> str:
        return self.state.name


def cause(trace: str) -> str:
    """Extract why a task failed from its stack trace: the first line and the cause that tells most."""
    lines = [line.strip() for line in trace.splitlines() if line.strip()]
    if not lines:
        return NO_REASON
    causes = [line.removeprefix("Caused by: ") for line in lines if line.startswith("Caused by: ")]
    for found in causes:
        if "ParsingException" in found:
            # Its own cause is a class of the parser.
            statement = _PLEA.sub("", _without_class(found))
            return f"the connector cannot parse a statement: {statement}"
    first = _without_class(lines[0])
    # A cause that names a column tells more than its own cause.
    named = [found for found in causes if " value for '" in found]
    root = _without_class([*causes, *named][-1]) if causes else first
    return first if root in first else f"{first} ({root})"


_PLEA: Final = re.compile(r"^DDL statement couldn't be parsed\. Please open .*? with the statement ")


def _without_class(line: str) -> str:
    """Remove the exception class from `org.example.SomeException: text`; it does not help the operator."""
    return re.sub(r"^(?:[\w$]+\.)+[\w$]+: ", "", line)


_REFUSED: Final = re.compile(r"denied|locked|expired", re.IGNORECASE)
_LOST_CONNECTION: Final = re.compile(
    r"Failed to read (?:next|remaining)|Failed to establish connection|[Cc]ommunications link failure|"
    r"Connection (?:refused|reset)|Broken pipe|Unable to connect|timed out|Server shutdown|shutting down|"
    r"end-of-stream|EOFException|Error reading MySQL variables"
)


def lost_connection(cause: str) -> bool:
    """Return whether a task failed because it could not reach the database, so that it may succeed later."""
    return _REFUSED.search(cause) is None and _LOST_CONNECTION.search(cause) is not None


def lost_binlog(cause: str) -> bool:
    """Return whether a task failed because the server deleted binlogs that it had not read."""
    lower = cause.lower()
    return "no longer available on the server" in lower or (
        ("binlog" in lower or "binary log" in lower) and "purged" in lower
    )


def resume_hint(address: str) -> str:
    """Return the next step for a connector that is paused or stopped, by its URL in Kafka Connect."""
    return f"resume it in Kafka Connect: PUT {address}/resume"


def failure_hint(cause: str, restart: str = "run: replicator connect") -> str:
    """Return the next step for the most common failures. `restart` is how the operator restarts the connector."""
    lower = cause.lower()
    if "using password" in lower:
        return "check the user in source.url, and that source.password names the right variable or file"
    if "locked" in lower or "expired" in lower:
        return f"unlock the user of source.url in MySQL, or give it a new password; then {restart}"
    if "access denied" in lower:
        return (
            "give the user SELECT, RELOAD, SHOW DATABASES, REPLICATION SLAVE, REPLICATION CLIENT, LOCK TABLES"
        )
    if lost_binlog(cause):
        return "the server deleted binlogs that the connector still needed: run a new snapshot"
    if lost_connection(cause):
        return f"check that MySQL is running and reachable from the Kafka Connect worker; then {restart}"
    return _hint_for_table(lower, restart)


def _hint_for_table(lower: str, restart: str) -> str:
    if "unable to open underlying table" in lower:
        query = "SELECT table_schema, table_name FROM information_schema.tables WHERE engine = 'MRG_MYISAM'"
        return f"repair or drop the MERGE table ({query}), or exclude it from source.tables; then {restart}"
    if "internal schema size" in lower:
        return f"set binlog_row_image = FULL in all sessions that change this table, or exclude it; then {restart}"
    if "deserializing binlog data" in lower:
        return 'set heal.mode = "auto", by which the running mirror lets the connector skip the value'
    if "cannot parse a statement" in lower:
        return f"{restart}, which lets the connector skip the statement"
    return f"fix the cause, then {restart}; the log of the Kafka Connect worker has the full stack trace"
