"""`replicator stack`: control the local stack."""

# ruff: noqa: PLC0415 - what a command needs is imported inside it, so that --help answers at once

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from replicator.cli.options import AsJson
from replicator.errors import UsageError

if TYPE_CHECKING:
    from rich.status import Status

    # The stack's own imports take half a second, which `--help` must not.
    from replicator.operations.stack import DockerStack, Endpoints, LocalStack, Part, PartStatus

app = typer.Typer(
    help="A real MySQL, Kafka, Kafka Connect with Debezium and schema registry on this machine, for development.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

Folder = Annotated[Path, typer.Option("--dir", metavar="DIR", help="Folder with data, logs and passwords.")]
DEFAULT_FOLDER = Path(".replicator/stack")

_TRY = """
Try it:
  replicator stack sql "CREATE DATABASE shop"
  replicator stack sql "CREATE TABLE shop.guests (id INT PRIMARY KEY, name VARCHAR(80))"
  replicator stack sql "INSERT INTO shop.guests VALUES (1, 'Ada'), (2, 'Linus')"
  replicator init --stack {folder}"""


@app.command()
def up(  # noqa: PLR0917 - typer calls it, by name
    folder: Folder = DEFAULT_FOLDER,
    only: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PART", help="Start only this part: mysql, kafka, connect or registry. Repeatable."
        ),
    ] = None,
    mysql: Annotated[
        str,
        typer.Option(
            metavar="VERSION|PATH",
            envvar="REPLICATOR_MYSQL",
            help="The MySQL server to run: a version such as 8.0, or the path of mysqld or of its folder.",
        ),
    ] = "",
    mysql_port: Annotated[int, typer.Option(help="Port of MySQL; 0 means any free port.")] = 0,
    kafka_port: Annotated[int, typer.Option(help="Port of Kafka; 0 means any free port.")] = 0,
    connect_port: Annotated[int, typer.Option(help="Port of Kafka Connect; 0 means any free port.")] = 0,
    registry_port: Annotated[int, typer.Option(help="Port of the registry; 0 means any free port.")] = 0,
    registry: Annotated[
        bool, typer.Option("--registry", help="Also start a schema registry, for events in Avro.")
    ] = False,
    docker: Annotated[
        bool, typer.Option("--docker", help="Run the containers of compose/compose.yaml instead.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Start the parts that are not running, and print their addresses.

    The parts keep running when this command ends; data remain in the folder until you remove it. The first
    start downloads about 60 MB of Java libraries (with --registry 140 MB more). MySQL is the one installed on this
    machine. If there is none, root gets the newest with debootstrap (640 MB), any other user MySQL 8.0.33 (553 MB).

    \b
    Examples:
      replicator stack up
      replicator stack up --registry
      replicator stack up --mysql 8.0
      replicator stack up --mysql-port 3306 --kafka-port 9092 --connect-port 8083
    """
    from replicator.cli.output import print_json
    from replicator.operations.stack import PARTS, DockerStack, LocalStack, Options

    if docker and mysql:
        raise UsageError(
            "--mysql selects a server of this machine, and --docker a container", "leave out one of them"
        )
    with _working("starting") as status:
        if docker:
            found = DockerStack(folder, status.update).up(registry=registry)
        else:
            wanted = (mysql_port, kafka_port, connect_port, registry_port)
            ports: dict[str, int] = {part: port for part, port in zip(PARTS, wanted, strict=True) if port}
            parts = _parts(only, registry=registry)
            found = LocalStack(folder, Options(ports=ports, mysql=mysql, report=status.update)).up(parts)
    if as_json:
        print_json({"version": 1, "state_file": str(folder / "stack.json"), **_shown(found)})
    else:
        _print_endpoints(found, folder)


@app.command()
def down(folder: Folder = DEFAULT_FOLDER) -> None:
    """Stop all parts. The data remain; remove the folder to start from scratch."""
    with _working("stopping") as status:
        stopped = _stack(folder, status.update).down()
    typer.echo(f"Stopped: {', '.join(stopped)}." if stopped else "Nothing was running.")


@app.command("status")
def show(folder: Folder = DEFAULT_FOLDER, as_json: AsJson = False) -> None:
    """Show the state of each part. Exits with 1 unless all started parts are healthy."""
    from replicator.cli.output import print_json

    parts = _stack(folder).status()
    if as_json:
        print_json({"version": 1, "parts": [asdict(part) for part in parts]})
    else:
        _print_status(parts)
    started = [part for part in parts if part.address]
    if not started or not all(part.healthy for part in started):
        raise typer.Exit(1)


@app.command()
def sql(
    statements: Annotated[str, typer.Argument(help="SQL, with semicolons between statements.")],
    folder: Folder = DEFAULT_FOLDER,
) -> None:
    """Run SQL on the stack's MySQL as root, and print the resulting rows.

    \b
    Example:
      replicator stack sql "SHOW DATABASES"
    """
    from rich.console import Console

    from replicator.cli.output import new_table
    from replicator.operations.stack.client import run_sql

    for names, rows in run_sql(_running_mysql(folder), statements):
        table = new_table(*names)
        for row in rows:
            table.add_row(*("NULL" if cell is None else str(cell) for cell in row))
        Console(width=200 if not Console().is_terminal else None, markup=False).print(table)


@app.command()
def password(folder: Folder = DEFAULT_FOLDER) -> None:
    """Print the password of the stack's MySQL user `replicator`.

    \b
    Example:
      export SHOP_PASSWORD=$(replicator stack password)
    """
    typer.echo(_running_mysql(folder).mysql_password)


def _running_mysql(folder: Path) -> "Endpoints":
    from replicator.operations.stack import load_state

    state = load_state(folder.absolute())
    found = None if state is None else state.endpoints()
    if found is None or not found.mysql_port:
        raise UsageError(f"no MySQL is running in {folder}", "start it: replicator stack up")
    return found


def _stack(folder: Path, report: object = None) -> "LocalStack | DockerStack":
    """Return the stack that was started in a folder, of either kind."""
    from replicator.operations.stack import DockerStack, LocalStack, Options, load_state

    say = report if callable(report) else None
    state = load_state(folder.absolute())
    if state is not None and state.provider == "docker":
        return DockerStack(folder, say)
    return LocalStack(folder, Options(report=say))


def _parts(names: list[str] | None, *, registry: bool) -> "list[Part]":
    from replicator.operations.stack import PARTS, USUAL_PARTS

    for name in names or ():
        if name not in PARTS:
            raise UsageError(f"unknown part {name}", f"choose from {', '.join(PARTS)}")
    wanted = {*(names or USUAL_PARTS), *(["registry"] if registry else [])}
    return [part for part in PARTS if part in wanted]


def _shown(found: "Endpoints") -> dict[str, object]:
    """Return the endpoints without passwords, which remain in the private state file."""
    return {name: value for name, value in asdict(found).items() if "password" not in name}


def _print_endpoints(found: "Endpoints", folder: Path) -> None:
    if found.mysql_port:
        label = f"MySQL {found.mysql_version}".rstrip()
        typer.echo(f"{label:<14} mysql://{found.mysql_user}@{found.mysql_host}:{found.mysql_port}")
    if found.bootstrap_servers:
        typer.echo(f"Kafka          {found.bootstrap_servers}")
    if found.connect_url:
        typer.echo(f"Kafka Connect  {found.connect_url}")
    if found.registry_url:
        typer.echo(f"Registry       {found.registry_url}")
    typer.echo(f"Passwords are in {folder / 'stack.json'}. Stop the stack with: replicator stack down")
    if found.mysql_port and found.bootstrap_servers and found.connect_url:
        typer.echo(_TRY.format(folder=folder))


def _print_status(parts: "list[PartStatus]") -> None:
    from replicator.cli.output import new_console, new_table

    table = new_table("part", "state", "process", "address", "log")
    for part in parts:
        state = "healthy" if part.healthy else "not answering" if part.running else "stopped"
        table.add_row(part.part, state, str(part.pid or "-"), part.address or "-", part.log)
    new_console().print(table)


def _working(text: str) -> "Status":
    """Return a line on the standard error that shows what is done, on a terminal."""
    from rich.console import Console

    return Console(stderr=True).status(text)
