"""`replicator pipeline`: list, explain, refresh, check and drop pipelines."""

# ruff: noqa: PLC0415 - what a command needs is imported inside it, so that --help answers at once

import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from replicator.cli.options import DEFAULT_CONFIG, AsJson, ConfigFile, moment
from replicator.errors import UsageError

if TYPE_CHECKING:
    from replicator.pipelines.service import Result

_Name = Annotated[
    str,
    typer.Argument(
        metavar="NAME", help="The pipeline: its file without .sql or .py; or the table of a history."
    ),
]
_Names = Annotated[
    list[str] | None,
    typer.Argument(metavar="[NAME]...", help="Only these, and those that they read.", show_default=False),
]
_Wait = Annotated[
    float,
    typer.Option(
        "--wait", metavar="SECONDS", help="How long to wait until the mirrors have all changes of the source."
    ),
]

_HELP = """Tables that are computed from mirrors, and kept current.

A pipeline is a file NAME.sql in the folder `pipelines` beside the configuration: one SELECT in Spark SQL, after
comment lines that say more of its result:

\b
  -- key: day, country
  -- description: revenue by day and country
  SELECT to_date(o.created_at) AS day, c.country, sum(o.total) AS revenue
  FROM shop.orders o JOIN shop.customers c ON c.id = o.customer_id
  GROUP BY to_date(o.created_at), c.country

Tables are named as they are in the lake. The result is the table NAMESPACE_pipelines.NAME.

A file NAME.py has a function from DataFrames to a DataFrame instead, which runs in the process of the mirror:

\b
  # input orders: shop.orders
  # by key: customer_id
  def model(orders):
      return orders.groupBy("customer_id").count()

Histories of tables, which the configuration asks for, are kept current in the same way. Their names are those of their
tables: NAMESPACE_history.TABLE.
"""

app = typer.Typer(
    help=_HELP,
    no_args_is_help=True,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)


@app.command("list")
def list_(config: ConfigFile = DEFAULT_CONFIG, as_json: AsJson = False) -> None:
    """List the pipelines, each after those that it reads, and the state of their results."""
    from replicator.cli.render_pipeline import print_pipelines
    from replicator.config import load
    from replicator.pipelines.status import list_pipelines

    settings = load(config)
    found = list_pipelines(settings)
    print_pipelines(found, settings.pipelines.folder, as_json=as_json)
    raise typer.Exit(1 if any(status.problem for status in found) else 0)


@app.command()
def show(
    name: _Name,
    config: ConfigFile = DEFAULT_CONFIG,
    graph: Annotated[
        Path | None,
        typer.Option(
            "--graph",
            metavar="FILE",
            help="Write a picture of what it reads and what reads it: FILE.svg, or FILE.html with the plans.",
            show_default=False,
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Explain a pipeline: what it reads, how its result is kept current, and what a refresh costs."""
    from replicator.cli.pipeline_graph import write_graph
    from replicator.cli.render_pipeline import print_explained
    from replicator.config import load
    from replicator.pipelines.status import show_pipeline

    found, *related = show_pipeline(load(config), name)
    print_explained(found, related, as_json=as_json)
    if graph is not None:
        write_graph(graph, related, name)
    raise typer.Exit(1 if found.status.problem else 0)


@app.command()
def run(
    names: _Names = None,
    config: ConfigFile = DEFAULT_CONFIG,
    follow: Annotated[
        bool, typer.Option("--follow", help="Go on, at the interval of [pipelines] every.")
    ] = False,
    wait: _Wait = 60,
    as_json: AsJson = False,
) -> None:
    """Bring results up to date, once or continuously.

    All results reach the same boundary between two transactions of the source. A result is first computed as a whole,
    from the mirrors as they are at the boundary, and then by what changed. A pipeline that fails is paused with a
    reason; the others continue, except those that read its result. This command tries it again.

    Exits with 1 if a pipeline was not refreshed.

    \b
    Examples:
      replicator pipeline run
      replicator pipeline run revenue --json
      replicator pipeline run --follow
    """
    from replicator.cli.output import progress_bar
    from replicator.cli.render_pipeline import print_results
    from replicator.config import load
    from replicator.operations.pipeline import follow_pipelines, refresh_pipelines
    from replicator.runner.signals import stop_on_signals

    settings = load(config)
    if follow:
        stopping = threading.Event()
        with stop_on_signals(stopping):
            follow_pipelines(
                settings, names or (), stopping, lambda r: print_results(r, as_json=as_json, follows=True)
            )
        return
    with progress_bar("starting Spark") as bar:
        results = refresh_pipelines(settings, names or (), wait=wait, on_progress=bar)
    print_results(results, as_json=as_json)
    _exit(results)


@app.command()
def rebuild(
    name: _Name,
    config: ConfigFile = DEFAULT_CONFIG,
    as_of: Annotated[
        str | None,
        typer.Option(
            "--as-of", metavar="MOMENT", help="Position, GTID or time; needs --to.", show_default=False
        ),
    ] = None,
    to: Annotated[
        str | None,
        typer.Option(
            "--to", metavar="NAMESPACE", help="Where the table as of MOMENT is written.", show_default=False
        ),
    ] = None,
    wait: _Wait = 60,
    as_json: AsJson = False,
) -> None:
    """Compute a result as a whole, and replace it in one commit. The old one stays readable until then.

    With --as-of, the result stays. The same SELECT is computed of the tables as they were at an earlier moment, which
    their changelogs tell, and written to the namespace of --to, as an ordinary table. MOMENT is as for
    `replicator rebuild`.

    \b
    Examples:
      replicator pipeline rebuild revenue
      replicator pipeline rebuild revenue --as-of 2026-07-25T10:00:00Z --to shop_then
    """
    from replicator.cli.output import progress_bar
    from replicator.cli.render_pipeline import print_as_of, print_results
    from replicator.config import load
    from replicator.operations.pipeline import refresh_pipelines
    from replicator.operations.rebuild.results import rebuild_result

    if (as_of is None) != (to is None):
        raise UsageError(
            "--as-of and --to belong together: the result itself goes on from now",
            "name a moment and a namespace: --as-of 2026-07-25T10:00:00Z --to shop_then",
        )
    settings, then = load(config), moment("--as-of", as_of)
    with progress_bar("starting Spark") as bar:
        if then is not None and to is not None:
            found = rebuild_result(settings, name, then, to, bar)
        else:
            results = refresh_pipelines(settings, [name], rebuild=True, wait=wait, on_progress=bar)
    if then is not None:
        print_as_of(found, as_json=as_json)
        return
    print_results(results, as_json=as_json)
    _exit(results)


@app.command()
def check(
    names: _Names = None,
    config: ConfigFile = DEFAULT_CONFIG,
    repair: Annotated[bool, typer.Option("--repair", help="Correct the results that differ.")] = False,
    as_json: AsJson = False,
) -> None:
    """Compute results as a whole, at the boundaries where they are, and compare them row for row.

    With --repair, a result that differs gets the rows that it should have, in one commit. If a refresh was wrong, its
    changelog gets the changes too, with the operation `h`: pipelines and consumers that read it get them as any other.

    Exits with 1 if a result differs and was not repaired.
    """
    from replicator.cli.output import progress_bar
    from replicator.cli.render_pipeline import print_checked
    from replicator.config import load
    from replicator.operations.pipeline import check_pipelines

    with progress_bar("starting Spark") as bar:
        found = check_pipelines(load(config), names or (), repair=repair, on_progress=bar)
    print_checked(found, as_json=as_json)
    raise typer.Exit(0 if all(checked.is_equal or checked.repaired for checked in found) else 1)


@app.command()
def drop(
    name: _Name,
    config: ConfigFile = DEFAULT_CONFIG,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    as_json: AsJson = False,
) -> None:
    """Drop the result of a pipeline, with its files.

    As long as the file of the pipeline exists, the next refresh computes it again.
    """
    from replicator.cli.output import print_json
    from replicator.config import load
    from replicator.operations.pipeline import drop_result

    settings = load(config)
    if not yes:
        _confirm(name)
    table = drop_result(settings, name)
    if as_json:
        print_json({"version": 1, "pipeline": name, "dropped": table})
    else:
        print(f"{name} had no result" if table is None else f"dropped {table}")


def _confirm(name: str) -> None:
    if not sys.stdin.isatty():
        raise UsageError(
            "the command asks for confirmation, but standard input is not a terminal", "add --yes"
        )
    if not typer.confirm(f"Drop the result of {name} and its files?", err=True):
        raise typer.Exit(1)


def _exit(results: "Sequence[Result]") -> None:
    from replicator.pipelines.service import NotRefreshed

    raise typer.Exit(1 if any(isinstance(result, NotRefreshed) for result in results) else 0)
