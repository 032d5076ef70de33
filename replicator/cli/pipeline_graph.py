"""Draw what a pipeline reads and what reads its result: lines of text, an SVG, or an HTML page with the plans.

The page and the picture need no network and run no script.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rich.text import Text
from rich.tree import Tree

from replicator.errors import UsageError

if TYPE_CHECKING:
    from replicator.pipelines.status import Explained, PipelineStatus

_WIDTH: Final = 250
_HEIGHT: Final = 62
_GAP_X: Final = 80
_GAP_Y: Final = 22
_MARGIN: Final = 12
_LETTERS: Final = 34
"""How many letters of a line are shown in a box."""
_STYLE: Final = """
svg { font: 13px system-ui, sans-serif; }
rect { fill: #888; fill-opacity: .08; stroke: #999; } rect.result { fill: #2f6fde; fill-opacity: .12; stroke: #2f6fde; }
rect.problem { fill: #c62828; stroke: #c62828; } rect.waits { fill: #9a6700; stroke: #9a6700; }
rect.chosen { stroke-width: 3px; }
text { fill: #444; } text.name { font-weight: 600; fill: #222; }
path { fill: none; stroke: #888; stroke-width: 1.5px; } marker path { fill: #888; stroke: none; }
@media (prefers-color-scheme: dark) { text { fill: #bbb; } text.name { fill: #eee; } }
"""
_PAGE_STYLE: Final = """
:root { color-scheme: light dark; }
body { font: 15px/1.5 system-ui, sans-serif; margin: 0 auto; max-width: 80rem; padding: 1rem; }
.graph { overflow-x: auto; } h1 { font-size: 1.5rem; } h2 { font-size: 1.15rem; margin-top: 2.5rem; }
pre { background: #8881; border-radius: 6px; overflow-x: auto; padding: .6rem .8rem; font-size: .85rem; }
.problem { color: #c62828; } summary { cursor: pointer; }
"""


@dataclass(frozen=True, slots=True)
class _Node:
    """A box: a table, or the result of a pipeline.

    Attributes:
        inputs: the names of the boxes that it is computed of.
        kind: what it looks like.
    """

    name: str
    lines: tuple[str, ...]
    inputs: tuple[str, ...] = ()
    kind: str = "table"


def write_graph(file: Path, found: "Sequence[Explained]", name: str) -> None:
    """Write the graph of pipelines that belong together to a file: SVG or HTML, as it ends.

    Raises:
        UsageError: it ends otherwise, or cannot be written.
    """
    match file.suffix.lower():
        case ".svg":
            text = _svg(found, name)
        case ".html" | ".htm":
            text = _page(found, name)
        case _:
            raise UsageError(f"--graph: {file} is no .svg and no .html", f"name it {file.stem}.html")
    try:
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(
            f"--graph: {file} cannot be written: {error.strerror}", "name a file in another folder"
        ) from error


def graph_text(found: "Sequence[Explained]", name: str) -> Iterator[Tree]:
    """Yield what a pipeline is computed of, and what reads its result, as trees."""
    nodes = _nodes(found, name)
    chosen = next(e.status.table for e in found if e.status.name == name)
    of = Tree(Text.assemble((chosen, "bold"), " is computed of"))
    _grow(of, nodes, chosen, {n: node.inputs for n, node in nodes.items()})
    yield of
    readers = {n: tuple(o for o, other in nodes.items() if n in other.inputs) for n in nodes}
    if readers[chosen]:
        by = Tree(Text.assemble((chosen, "bold"), " is read by"))
        _grow(by, nodes, chosen, readers)
        yield by


def _grow(tree: Tree, nodes: Mapping[str, _Node], name: str, next_of: Mapping[str, Sequence[str]]) -> None:
    for other in next_of[name]:
        _grow(
            tree.add(Text(" ".join((other, *(f"({line})" for line in nodes[other].lines))))),
            nodes,
            other,
            next_of,
        )


def _nodes(found: "Sequence[Explained]", name: str) -> dict[str, _Node]:
    """Return the boxes by name, each after those of which it is computed."""
    nodes: dict[str, _Node] = {}
    results = {explained.status.table.lower(): explained.status.table for explained in found}
    for explained in found:
        status = explained.status
        inputs = tuple(results.get(read.lower(), read) for read in status.reads)
        for table in inputs:
            nodes.setdefault(table, _Node(table, ()))
        rule = f"{status.rule}, " if status.rule else ""
        rows = "" if status.rows is None else f", {status.rows:,} rows"
        nodes.pop(status.table, None)
        nodes[status.table] = _Node(
            status.table, (f"{rule}{status.state}{rows}",), inputs, _kind(status, name)
        )
    return nodes


def _kind(status: "PipelineStatus", name: str) -> str:
    look = "problem" if status.problem else "waits" if status.waits_for else ""
    return " ".join(filter(None, ("result", look, "chosen" if status.name == name else "")))


def _places(nodes: Mapping[str, _Node]) -> dict[str, tuple[int, int]]:
    """Return box → column and row: each is right of those of which it is computed, and near their rows."""
    column: dict[str, int] = {}
    for name, node in nodes.items():
        column[name] = max((column[other] + 1 for other in node.inputs if other in column), default=0)
    places: dict[str, tuple[int, int]] = {}
    for number in range(max(column.values()) + 1):
        here = [name for name, found in column.items() if found == number]

        def near(name: str) -> float:
            rows = [places[other][1] for other in nodes[name].inputs if other in places]
            return sum(rows) / len(rows) if rows else 0.0

        for row, name in enumerate(sorted(here, key=near)):
            places[name] = (number, row)
    return places


def _svg(found: "Sequence[Explained]", chosen: str) -> str:
    nodes = _nodes(found, chosen)
    places = _places(nodes)
    width = 2 * _MARGIN + (max(c for c, _ in places.values()) + 1) * (_WIDTH + _GAP_X) - _GAP_X
    height = 2 * _MARGIN + (max(r for _, r in places.values()) + 1) * (_HEIGHT + _GAP_Y) - _GAP_Y
    corners = {
        name: (_MARGIN + column * (_WIDTH + _GAP_X), _MARGIN + row * (_HEIGHT + _GAP_Y))
        for name, (column, row) in places.items()
    }
    parts = [_arrow(corners[other], corners[name]) for name, node in nodes.items() for other in node.inputs]
    parts += [_box(node, *corners[name]) for name, node in nodes.items()]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'role="img" aria-label="{escape(f"What {chosen} reads, and what reads it")}">\n<style>{_STYLE}</style>\n'
        '<defs><marker id="end" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="6" markerHeight="6" orient="auto">'
        f'<path d="M0,0 L8,4 L0,8 z"/></marker></defs>\n{chr(10).join(parts)}\n</svg>\n'
    )


def _arrow(start: tuple[int, int], end: tuple[int, int]) -> str:
    x1, y1, x2, y2 = start[0] + _WIDTH, start[1] + _HEIGHT // 2, end[0], end[1] + _HEIGHT // 2
    middle = (x1 + x2) // 2
    return f'<path d="M{x1},{y1} C{middle},{y1} {middle},{y2} {x2},{y2}" marker-end="url(#end)"/>'


def _box(node: _Node, x: int, y: int) -> str:
    lines = [node.name, *node.lines]
    first = y + _HEIGHT // 2 + 5 - 9 * (len(lines) - 1)
    texts = "".join(
        f'<text class="{"line" if number else "name"}" x="{x + 12}" y="{first + 19 * number}">{_cut(line)}</text>'
        for number, line in enumerate(lines)
    )
    title = f"<title>{escape(chr(10).join(lines))}</title>"
    size = f'width="{_WIDTH}" height="{_HEIGHT}" rx="8"'
    return f'<g>{title}<rect class="{node.kind}" x="{x}" y="{y}" {size}/>{texts}</g>'


def _cut(text: str) -> str:
    return escape(text if len(text) <= _LETTERS else f"{text[: _LETTERS - 1]}…")


def _page(found: "Sequence[Explained]", chosen: str) -> str:
    parts = [f"<h1>Pipeline {escape(chosen)}</h1>", f'<div class="graph">{_svg(found, chosen)}</div>']
    for explained in found:
        parts += _section(explained)
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(chosen)}</title><style>{_PAGE_STYLE}</style></head>\n<body>\n{chr(10).join(parts)}\n"
        "</body></html>\n"
    )


def _section(explained: "Explained") -> Iterator[str]:
    status = explained.status
    yield f"<h2>{escape(status.name)}</h2>"
    if status.description:
        yield f"<p>{escape(status.description)}</p>"
    if status.problem:
        yield f'<p class="problem">{escape(status.problem)}</p>'
    upto = "" if status.boundary is None else f", up to {status.boundary}"
    yield f"<p>{escape(f'{status.file} → {status.table}, {status.state}{upto}')}</p>"
    if explained.plan:
        yield f"<pre>{escape(chr(10).join(explained.plan))}</pre>"
    if explained.full:
        yield f"<details><summary>The whole result</summary><pre>{escape(explained.full)}</pre></details>"
    for view, sql in explained.steps:
        yield f"<details><summary>{escape(view)}</summary><pre>{escape(sql)}</pre></details>"
