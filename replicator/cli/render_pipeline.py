"""Print what the commands for pipelines report."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.table import Table
from rich.text import Text

from replicator.cli.output import ago, coloured, duration, new_console, new_table, print_json, say
from replicator.cli.pipeline_graph import graph_text
from replicator.model.common import counted

if TYPE_CHECKING:
    from replicator.operations.rebuild.results import ComputedAsOf
    from replicator.pipelines.checking import Checked
    from replicator.pipelines.refresh.refresh import Refreshed
    from replicator.pipelines.service import NotRefreshed, Result
    from replicator.pipelines.status import Explained, PipelineStatus


def print_pipelines(found: "Sequence[PipelineStatus]", folder: Path, *, as_json: bool) -> None:
    """Print the pipelines."""
    if as_json:
        print_json({"version": 1, "pipelines": [status.to_json() for status in found]})
        return
    console = new_console()
    if not found:
        say(console, f"There are no pipelines: write a SELECT to {folder}/NAME.sql")
        return
    for part in pipeline_lines(found):
        console.print(part, soft_wrap=isinstance(part, Text))


def pipeline_lines(found: "Sequence[PipelineStatus]") -> Iterator[Table | Text]:
    """Yield a table of pipelines, and what is wrong with them."""
    table = new_table("pipeline", "state", "kept current by", "rows", "up to", "changed", "result")
    for status in found:
        ms = status.refreshed_ms
        table.add_row(
            status.name,
            coloured(status.state),
            _rule(status),
            "" if status.rows is None else f"{status.rows:,}",
            status.boundary or "",
            "" if ms is None else ago(ms),
            status.table,
        )
    yield table
    for status in found:
        yield from _state_lines(status)
        for check in status.checks:
            if check.failed_in_day:
                yield Text(
                    f"{status.name}: {check.failed:,} of {counted(check.rows, 'row')} do not meet the check "
                    f"{check.name} ({check.action}); {check.failed_in_day:,} in the last day",
                    style="yellow",
                )


def _rule(status: "PipelineStatus") -> str:
    """Return how a result is kept current, with what its refreshes took if that decides."""
    if status.refresh != "auto" or status.rule in (None, "full"):
        return status.rule or ""
    taken = [(status.rule, status.seconds_changes), ("full", status.seconds_whole)]
    return " or ".join(
        f"{rule} ({duration(took)})" if took is not None else str(rule) for rule, took in taken
    )


def print_explained(found: "Explained", related: "Sequence[Explained]", *, as_json: bool) -> None:
    """Print a pipeline with its plan; `related` are those that it reads and that read it, and itself."""
    status = found.status
    if as_json:
        steps = [{"view": view, "sql": sql} for view, sql in found.steps]
        plan = {"plan": list(found.plan), "full": found.full, "steps": steps}
        print_json({"version": 1, **status.to_json(), **plan})
        return
    console = new_console()
    console.print(Text.assemble((status.name, "bold"), f" ({status.file})"), soft_wrap=True)
    if status.description:
        say(console, status.description)
    rows = "" if status.rows is None else f", {counted(status.rows, 'row')}"
    upto = "" if status.boundary is None else f", up to {status.boundary}"
    console.print(
        Text.assemble("result: ", status.table, " ", coloured(status.state), rows, upto), soft_wrap=True
    )
    for line in [*found.plan, *_costs(status)]:
        say(console, line)
    for tree in graph_text(related, status.name):
        console.print(tree, soft_wrap=True)
    for text in _state_lines(status):
        console.print(text, soft_wrap=True)


def _costs(status: "PipelineStatus") -> Iterator[str]:
    """Yield what refreshes took."""
    known = []
    if status.seconds_changes is not None:
        known.append(
            f"{duration(status.seconds_changes)} by {counted(status.images or 0, 'image')} of changes"
        )
    if status.seconds_whole is not None:
        known.append(f"{duration(status.seconds_whole)} as a whole")
    if known:
        yield f"refreshes took: {', '.join(known)}"
    if status.refresh == "auto":
        yield "refresh: auto, each time by what is expected to take less time"


def print_results(results: "Sequence[Result]", *, as_json: bool, follows: bool = False) -> None:
    """Print what refreshes did; of several ones that follow each other, only what happened."""
    values = [_result_values(result) for result in results]
    if as_json and follows:
        # One line for each round, for programs that read them as they come.
        print(json.dumps({"version": 1, "pipelines": values}, ensure_ascii=False), flush=True)
        return
    if as_json:
        print_json({"version": 1, "pipelines": values})
        return
    console = new_console()
    for result, value in zip(results, values, strict=True):
        if not follows or value["outcome"] != "same":
            for line in _result_lines(result):
                console.print(line, soft_wrap=True)


def print_checked(found: "Sequence[Checked]", *, as_json: bool) -> None:
    """Print comparisons of results with their computation as a whole."""
    if as_json:
        print_json({"version": 1, "pipelines": [_checked_values(checked) for checked in found]})
        return
    console = new_console()
    for checked in found:
        name = f"{checked.pipeline}: {counted(checked.rows, 'row')}, "
        if checked.is_equal:
            say(console, f"{name}equal to its computation as a whole", "green")
            continue
        say(console, f"{name}{checked.missing:,} missing, {checked.extra:,} that should not be there", "red")
        for sign, row in checked.examples:
            shown = ", ".join(f"{column} = {value}" for column, value in row.items())
            say(console, f"  {sign} {shown}")
        if checked.repaired:
            say(console, "repaired: it has the rows that it should have", "green")
        else:
            say(console, f"next:  replicator pipeline check {checked.pipeline} --repair")


def print_as_of(found: "ComputedAsOf", *, as_json: bool) -> None:
    """Print a result as of a moment."""
    if as_json:
        print_json({"version": 1, **asdict(found)})
        return
    text = f"{found.pipeline} as of {found.position}: {counted(found.rows, 'row')} in {found.table}"
    say(new_console(), text, "green")


def _result_values(result: "Result") -> dict[str, Any]:
    from replicator.pipelines.service import NotRefreshed  # noqa: PLC0415 - it imports Spark

    common = {"pipeline": result.pipeline, "table": str(result.table)}
    if isinstance(result, NotRefreshed):
        outcome = "waits" if result.waits else "paused"
        return {**common, "outcome": outcome, "reason": result.reason, "hint": result.hint}
    checks = [
        {"name": c.name, "action": str(c.action), "rows": c.rows, "failed": c.failed} for c in result.checks
    ]
    return {
        **common,
        "outcome": str(result.outcome),
        "boundary": str(result.boundary),
        "reason": result.reason,
        "changes": result.changes,
        "added": result.added,
        "removed": result.removed,
        "seconds": round(result.seconds, 3),
        "checks": checks,
    }


def _result_lines(result: "Result") -> Iterator[Text]:
    from replicator.pipelines.service import NotRefreshed  # noqa: PLC0415 - it imports Spark

    if isinstance(result, NotRefreshed):
        yield from _not_refreshed(result)
        return
    text = f"{result.pipeline}: {_what(result)}, up to {result.boundary}, in {duration(result.seconds)}"
    yield Text(text, style="green")
    for check in result.checks:
        if check.failed:
            text = f"  {check.name}: {check.failed:,} of {counted(check.rows, 'row')} do not meet it ({check.action})"
            yield Text(text, style="yellow")


def _what(result: "Refreshed") -> str:
    if result.added is None:
        return f"computed as a whole ({result.reason})"
    if not result.added and not result.removed:
        return "nothing to change"
    rows = f"{counted(result.added, 'row')} written, {result.removed:,} removed"
    return f"{counted(result.changes, 'image')} of changes read, {rows}"


def _not_refreshed(result: "NotRefreshed") -> Iterator[Text]:
    state, colour = ("waits", "yellow") if result.waits else ("paused", "red")
    yield Text(f"{result.pipeline}: {state}: {result.reason}", style=colour)
    if result.hint:
        yield Text(f"  next: {result.hint}")


def _state_lines(status: "PipelineStatus") -> Iterator[Text]:
    if status.problem is not None:
        yield Text(f"error: {status.problem}", style="red")
        if status.hint:
            yield Text(f"next:  {status.hint}")
    elif status.waits_for:
        first = ", ".join(status.waits_for)
        yield Text(f"{status.name} waits for the first rows of {first}", style="yellow")


def _checked_values(checked: "Checked") -> Mapping[str, Any]:
    examples = [
        {"sign": sign, "row": {k: _plain(v) for k, v in row.items()}} for sign, row in checked.examples
    ]
    return {
        "pipeline": checked.pipeline,
        "table": str(checked.table),
        "boundary": str(checked.boundary),
        "rows": checked.rows,
        "equal": checked.is_equal,
        "missing": checked.missing,
        "extra": checked.extra,
        "repaired": checked.repaired,
        "examples": examples,
    }


def _plain(value: object) -> object:
    return value if isinstance(value, (int, float, str, bool, type(None))) else str(value)
