"""Report on a running mirror: structured log lines, stage times, one report per batch.

setup_logging()
watch = Stopwatch()
with watch.stage("decode"):
    ...
report = BatchReport(batch=7, events=1200, rows={"INSERT": 1200}, tables=3, seconds=watch.times())
log_batch(report)
"""

import logging
import sys
import threading
import time
from collections.abc import Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, TextIO

import structlog

_SECRET_WORDS = ("password", "passwd", "secret", "token", "jaas", "credential", "authorization")
_HIDDEN = "(hidden)"


@dataclass(frozen=True, slots=True)
class StageTimes:
    """Seconds per stage, in the order in which the stages first ran. The times of parallel work are added up."""

    seconds: Mapping[str, float] = field(default_factory=dict)
    wall: float = 0.0

    def rounded(self) -> dict[str, float]:
        """Return the seconds per stage, rounded to milliseconds for display."""
        return {stage: round(seconds, 3) for stage, seconds in self.seconds.items()}


class Stopwatch:
    """Measure the time of stages, also from several threads; `times` returns what has been measured so far."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._started = time.perf_counter()
        self._seconds: dict[str, float] = {}

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Add the time spent inside to the stage `name`, also if the block raises an error."""
        with self._lock:
            self._seconds.setdefault(name, 0.0)
        started = time.perf_counter()
        try:
            yield
        finally:
            elapsed = time.perf_counter() - started
            with self._lock:
                self._seconds[name] += elapsed

    def times(self) -> StageTimes:
        """Return the seconds per stage so far, and the seconds since the stopwatch was created."""
        with self._lock:
            return StageTimes(dict(self._seconds), time.perf_counter() - self._started)


@dataclass(frozen=True, slots=True)
class BatchReport:
    """The result of one batch.

    Attributes:
        batch: the number that the mirror process gave to the batch.
        events: raw events read from the log.
        rows: row kind → rows written to the changelog (counted also if the table has no changelog).
        tables: number of mirrored tables that received a commit.
        seconds: time per stage.
        lag_seconds: commit time minus the newest source commit time; None if the batch has no changes.
        quarantined: number of events written to quarantine.
        paused: paused tables (`database.table`), which were not processed.
        backlog: number of events that are left for later batches, as known when the batch was planned.
    """

    batch: int
    events: int
    rows: Mapping[str, int]
    tables: int
    seconds: StageTimes
    lag_seconds: float | None = None
    quarantined: int = 0
    paused: tuple[str, ...] = ()
    backlog: int = 0

    @property
    def events_per_second(self) -> float:
        """Return events per second of wall-clock time; 0 if the batch took no time."""
        return self.events / self.seconds.wall if self.seconds.wall > 0 else 0.0

    def fields(self) -> dict[str, Any]:
        """Return the report as the flat fields of a log line."""
        fields: dict[str, Any] = {
            "batch": self.batch,
            "events": self.events,
            "rows": {str(kind): count for kind, count in self.rows.items()},
            "tables": self.tables,
            "seconds": round(self.seconds.wall, 3),
            "stages": self.seconds.rounded(),
            "events_per_second": round(self.events_per_second),
            "lag_seconds": None if self.lag_seconds is None else round(self.lag_seconds, 3),
        }
        if self.backlog:
            fields["backlog"] = self.backlog
        if self.quarantined:
            fields["quarantined"] = self.quarantined
        if self.paused:
            fields["paused"] = list(self.paused)
        return fields


def log_batch(report: BatchReport) -> None:
    """Write one log line per batch, as a warning if events were quarantined or tables are paused."""
    log = get_logger("replicator.batch")
    write = log.warning if report.quarantined or report.paused else log.info
    write("batch", **report.fields())


def get_logger(name: str) -> structlog.stdlib.BoundLogger:
    """Return a logger for structured events: `log.info("started", mirror="shop")`."""
    logger: structlog.stdlib.BoundLogger = structlog.get_logger(name)
    return logger


def setup_logging(stream: TextIO | None = None, *, level: int = logging.INFO) -> None:
    """Log to `stream` (default: standard error): a sentence per line on a terminal, otherwise a JSON object."""
    target = sys.stderr if stream is None else stream
    terminal = target.isatty()
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_logger_name,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="%H:%M:%S" if terminal else "iso", utc=not terminal),
        hide_secrets,
    ]
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        wrapper_class=structlog.stdlib.BoundLogger,
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=False,
    )
    handler = logging.StreamHandler(target)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *_renderers(terminal)],
        )
    )
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(logging.WARNING)
    logging.getLogger("replicator").setLevel(level)


def _renderers(terminal: bool) -> list[structlog.typing.Processor]:
    if terminal:
        return [structlog.processors.format_exc_info, render_sentence]
    # default=str: a SecretStr prints as stars, a Path as its text.
    return [structlog.processors.format_exc_info, structlog.processors.JSONRenderer(default=str)]


_COLOURS: Final = {"warning": "\x1b[33m", "error": "\x1b[31m", "critical": "\x1b[31m"}
_UNSHOWN: Final = ("timestamp", "level", "logger", "event", "exception")


def render_sentence(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> str:
    """Return a log line for a person: the time, what happened, and the fields (a structlog processor)."""
    name = str(event.get("event", ""))
    text = _batch_text(event) if name == "batch" else ", ".join([name, *_named_fields(event)])
    line = f"{event.get('timestamp', '')} {text}"
    if "exception" in event:
        line += f"\n{event['exception']}"
    colour = _COLOURS.get(str(event.get("level")), "")
    return f"{colour}{line}\x1b[0m" if colour else line


def _named_fields(event: Mapping[str, Any]) -> Iterator[str]:
    for name, value in event.items():
        if name not in _UNSHOWN and value not in (None, [], {}, ()):
            shown = ", ".join(map(str, value)) if isinstance(value, list | tuple) else value
            yield f"{name.replace('_', ' ')}: {shown}"


def _batch_text(event: Mapping[str, Any]) -> str:
    """Describe a batch; see `BatchReport.fields`."""
    parts = [
        f"batch {event.get('batch')}: {_number(event.get('events', 0), 'event')}",
        _number(event.get("tables", 0), "table"),
        f"{event.get('seconds', 0):.1f} s",
    ]
    if event.get("lag_seconds") is not None:
        parts.append(f"lag {event['lag_seconds']:.1f} s")
    if event.get("backlog"):
        parts.append(f"{event['backlog']:,} left")
    if event.get("quarantined"):
        parts.append(f"{event['quarantined']:,} quarantined")
    if event.get("paused"):
        parts.append(f"paused: {', '.join(event['paused'])}")
    return ", ".join(parts)


def _number(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def hide_secrets(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Hide the values of all fields whose names suggest a secret, at any depth (a structlog processor)."""
    for name in list(event):
        event[name] = _hide(name, event[name])
    return event


def _hide(name: str, value: Any) -> Any:
    if any(word in name.lower() for word in _SECRET_WORDS):
        return _HIDDEN
    if isinstance(value, Mapping):
        return {inner: _hide(str(inner), inside) for inner, inside in value.items()}
    return value
