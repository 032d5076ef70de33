"""`replicator quarantine`: list, replay or drop quarantined events."""

# ruff: noqa: PLC0415 - what a command needs is imported inside it, so that --help answers at once

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from replicator.cli.options import DEFAULT_CONFIG, AsJson, ConfigFile, Tables, chosen
from replicator.errors import UsageError
from replicator.model.common import counted

if TYPE_CHECKING:
    from replicator.model.quarantine import QuarantineFilter

app = typer.Typer(
    help="""List, replay or drop events that could not be decoded or applied.

Each event has a reason, and is identified by its coordinate in the log, TOPIC:PARTITION:OFFSET.

\b
  replicator quarantine list              which events, and why
  (fix the cause, stop the mirror)
  replicator quarantine replay            apply them
  replicator quarantine drop --id …       discard them
""",
    no_args_is_help=True,
    rich_markup_mode=None,
)

_Table = Annotated[
    list[str] | None,
    typer.Option("--table", metavar="DATABASE.TABLE", help="Only events of this source table. Repeatable."),
]
Reason = Annotated[
    str | None, typer.Option(metavar="TEXT", help="Only events whose reason contains this text.")
]
Since = Annotated[
    str | None,
    typer.Option(
        metavar="TIME", help='Only events quarantined since: "2 hours", "3 days", or 2026-01-31T12:00 (UTC).'
    ),
]
Ids = Annotated[
    list[str] | None,
    typer.Option(
        "--id", metavar="TOPIC:PARTITION:OFFSET", help="Only this event, as the list shows it. Repeatable."
    ),
]
_UNITS = {"minute": 60, "hour": 3600, "day": 86400, "week": 604800}


@app.command("list")
def show(  # noqa: PLR0917 typer's options
    tables: Tables = None,
    config: ConfigFile = DEFAULT_CONFIG,
    table: _Table = None,
    reason: Reason = None,
    since: Since = None,
    ids: Ids = None,
    limit: Annotated[int, typer.Option(min=1, help="Maximum number of events to show, oldest first.")] = 100,
    everything: Annotated[
        bool,
        typer.Option("--all", help="Include resolved events: replayed, dropped, or contained in a re-read."),
    ] = False,
    payload: Annotated[bool, typer.Option("--payload", help="Show key and value of each event.")] = False,
    as_json: AsJson = False,
) -> None:
    """List the quarantined events and their reasons.

    Reads the lake without Java, whether or not the mirror runs. Events of tables with column rules are kept
    without their payload.

    \b
    Examples:
      replicator quarantine list -c shop.toml
      replicator quarantine list shop.orders --since "2 hours" --payload
      replicator quarantine list --json | jq -r '.events[].reason' | sort | uniq -c
    """
    from replicator.cli.render import print_quarantine
    from replicator.config import load
    from replicator.lake.reading.quarantine import read_quarantine

    found = read_quarantine(
        load(config), _wanted(chosen(tables, table), reason, since, ids, resolved=everything)
    )
    print_quarantine(found[:limit], len(found), payload=payload, as_json=as_json)


@app.command()
def replay(
    tables: Tables = None,
    config: ConfigFile = DEFAULT_CONFIG,
    table: _Table = None,
    reason: Reason = None,
    since: Since = None,
    ids: Ids = None,
    as_json: AsJson = False,
) -> None:
    """Apply quarantined events after the cause is fixed.

    Without options, all events are replayed. The mirror must not run: stop it, replay, start it again. An
    event never overwrites a later change to its row, and the changelog gets each event once, even if the
    command is killed and repeated. Events that their table has not reached yet are left to `replicator run`.
    Exits with 1 if events remain that cannot be applied.

    \b
    Examples:
      replicator quarantine replay -c shop.toml
      replicator quarantine replay shop.orders --reason "not JSON"
    """
    from replicator.cli.render import print_replayed
    from replicator.config import load
    from replicator.telemetry import setup_logging

    settings = load(config)
    setup_logging()
    from replicator.operations.quarantine import replay_quarantined

    done = replay_quarantined(settings, _wanted(chosen(tables, table), reason, since, ids))
    print_replayed(done, as_json=as_json)
    raise typer.Exit(0 if done.complete else 1)


@app.command()
def drop(
    tables: Tables = None,
    config: ConfigFile = DEFAULT_CONFIG,
    table: _Table = None,
    reason: Reason = None,
    since: Since = None,
    ids: Ids = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
) -> None:
    """Discard quarantined events.

    Their payload is deleted; coordinate and reason remain. A table that pauses for bad events
    (on_bad_event = "pause") skips dropped events at its next start. Without options, all events are dropped.
    Asks for confirmation. The mirror must not run. Exits with 1 if no event matches.

    \b
    Examples:
      replicator quarantine drop -c shop.toml --id shop.shop.orders:0:17
      replicator quarantine drop shop.orders --reason "not JSON" --yes
    """
    from replicator.config import load
    from replicator.lake.reading.quarantine import read_quarantine

    settings = load(config)
    found = read_quarantine(settings, _wanted(chosen(tables, table), reason, since, ids))
    if not found:
        typer.echo("No matching event is in quarantine.")
        raise typer.Exit(1)
    if not yes:
        for event in found[:10]:
            typer.echo(f"{event.place}  {event.reason}")
        if len(found) > 10:
            typer.echo(f"… and {len(found) - 10:,} more")
        if not typer.confirm(f"Drop {counted(len(found), 'event')} permanently?"):
            raise typer.Exit(1)
    from replicator.operations.quarantine import drop_quarantined

    dropped = drop_quarantined(settings, [event.place for event in found])
    typer.echo(f"{counted(dropped, 'event')} dropped.")


def _wanted(
    tables: tuple[str, ...],
    reason: str | None,
    since: str | None,
    ids: list[str] | None,
    *,
    resolved: bool = False,
) -> "QuarantineFilter":
    from replicator.model.quarantine import LogCoordinate, QuarantineFilter

    try:
        places = tuple(map(LogCoordinate.parse, ids or ()))
    except ValueError as error:
        raise UsageError(f"--id: {error}") from error
    return QuarantineFilter(tables, reason, None if since is None else _since_ms(since), places, resolved)


def _since_ms(text: str) -> int:
    number, _, unit = text.strip().partition(" ")
    seconds = _UNITS.get(unit.strip().removesuffix("s"))
    if seconds is not None and number.isdigit():
        return round((datetime.now(UTC).timestamp() - int(number) * seconds) * 1000)
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(
            f'--since: {text!r} is not a time; write "2 hours", "3 days", or 2026-01-31T12:00'
        ) from None
    return round((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() * 1000)
