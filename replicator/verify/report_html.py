"""Write the report of a check for people: one HTML file that needs no network and runs no script."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from html import escape
from itertools import groupby
from typing import Final

from replicator.model.common import counted
from replicator.verify.results import (
    ChunkResult,
    Kind,
    Report,
    RowDifference,
    TableResult,
    Verdict,
)

_ROWS: Final = 500
"""Rows of a table that are shown at most; JSON has all."""
_PARTS: Final = {"ranges": "ranges of keys", "buckets": "buckets", "keys": "set of keys that changed"}
_BARS: Final = 240
"""Bars of a chart at most: neighbouring chunks share one."""
_BAR_WIDTH: Final = 4
_BAR_HEIGHT: Final = 36
_MARK_HEIGHT: Final = 4
"""Height of the mark below a bar whose chunks differ."""
_ORDER: Final = (Verdict.DIFFERENT, Verdict.UNDECIDED, Verdict.EQUAL)

_STYLE: Final = """
:root { color-scheme: light dark; --line: #8884; --good: #1a7f37; --bad: #c62828; --unsure: #9a6700; }
@media (prefers-color-scheme: dark) { :root { --good: #4ac26b; --bad: #ff7b72; --unsure: #d29922; } }
* { box-sizing: border-box; }
body { font: 15px/1.5 system-ui, sans-serif; margin: 0 auto; max-width: 72rem; padding: 1rem; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.15rem; margin-top: 2.5rem; overflow-wrap: anywhere; }
.equal { color: var(--good); } .different { color: var(--bad); } .undecided { color: var(--unsure); }
.verdict { font-weight: 600; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; }
th, td { border-bottom: 1px solid var(--line); padding: .25rem .5rem; text-align: left; vertical-align: top; }
td.name { min-width: 9rem; overflow-wrap: anywhere; }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums; }
td.value { font-family: ui-monospace, monospace; font-size: .85rem; max-width: 22rem; overflow-wrap: anywhere; }
td.wrong { background: #c6282822; } .null { opacity: .6; font-style: italic; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .1rem 1rem; } dt { opacity: .7; }
dd { margin: 0; overflow-wrap: anywhere; }
svg { display: block; width: 100%; height: 44px; } .ok { fill: var(--good); } .off { fill: var(--bad); }
details { margin: .5rem 0; } .ends { display: flex; justify-content: space-between; font-size: .8rem; opacity: .7; }
@media (max-width: 40rem) { dl { grid-template-columns: 1fr; } dd { margin-bottom: .4rem; } }
"""


def to_html(report: Report) -> str:
    """Return a report as a whole HTML document."""
    parts = [*_head(report), *_overview(report.tables)]
    for table in report.tables:
        parts += _table(table)
    title = f"{report.mirror}: {report.verdict}"
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{_STYLE}</style></head>\n<body>\n{chr(10).join(parts)}\n</body></html>\n"
    )


def _head(report: Report) -> Iterator[str]:
    yield f"<h1>Mirror {escape(report.mirror)}: {_verdict(report.verdict)}</h1>"
    numbers = {v: sum(t.verdict is v for t in report.tables) for v in Verdict}
    rows = sum(table.source_rows for table in report.tables)
    checked = f"{counted(len(report.tables), 'table')}, {counted(rows, 'row')} of the source:"
    yield f"<p>{checked} {', '.join(f'{n} {v}' for v, n in numbers.items() if n)}.</p>"
    facts = {
        "Compared at": report.position,
        "GTIDs": report.gtids or "none",
        "Began": _time(report.began_ms),
        "Took": f"{(report.ended_ms - report.began_ms) / 1000:,.1f} s",
        "Source": f"MySQL {report.server_version}",
        "Engine": f"replicator {report.version}",
        **{
            name.replace("_", " ").capitalize(): _option(name, v)
            for name, v in report.options.items()
            if v is not None
        },
    }
    yield f"<dl>{''.join(f'<dt>{escape(k)}</dt><dd>{escape(v)}</dd>' for k, v in facts.items())}</dl>"


def _option(name: str, value: str | float) -> str:
    if name == "sample":
        # A share, which the command line has in percent.
        return f"{100 * float(value):g} %"
    return str(value)


def _overview(tables: Sequence[TableResult]) -> Iterator[str]:
    head = ("table", "verdict", "rows", "rows in the lake", "missing", "unexpected", "different", "seconds")
    cells = "".join(f'<th class="{"number" if i > 1 else "name"}">{name}</th>' for i, name in enumerate(head))
    yield f'<div class="wide"><table><tr>{cells}</tr>'
    for table in sorted(tables, key=lambda table: (_ORDER.index(table.verdict), table.table)):
        counts = [table.counts.get(kind, 0) for kind in Kind]
        more = "" if table.complete else "+"
        values = [
            f"{table.source_rows:,}",
            f"{table.lake_rows:,}",
            *(f"{count:,}{more if count else ''}" for count in counts),
            f"{table.seconds:,.1f}",
        ]
        name = f'<a href="#{_anchor(table)}">{escape(table.table)}</a>'
        numbers = "".join(f'<td class="number">{value}</td>' for value in values)
        yield f'<tr><td class="name">{name}</td><td>{_verdict(table.verdict)}</td>{numbers}</tr>'
    yield "</table></div>"


def _anchor(table: TableResult) -> str:
    return "table-" + table.table.encode().hex()


def _verdict(verdict: Verdict) -> str:
    return f'<span class="verdict {verdict}">{verdict}</span>'


def _table(table: TableResult) -> Iterator[str]:
    yield f'<h2 id="{_anchor(table)}">{escape(table.table)}: {_verdict(table.verdict)}</h2>'
    if table.reason:
        yield f"<p>{escape(table.reason)}</p>"
    for finding in table.schema:
        yield f'<p class="{finding.severity}">Columns: {escape(finding.text)}</p>'
    notes = list(_notes(table))
    if notes:
        yield f"<p>{escape('; '.join(notes))}.</p>"
    yield from _chart(table)
    yield from _rows(table)


def _notes(table: TableResult) -> Iterator[str]:
    """Yield what a reader should know of how a table was checked."""
    if table.fetched:
        yield f"{counted(table.fetched, 'row was', 'rows were')} fetched from the source"
    if table.later:
        yield f"{counted(table.later, 'image of a later change was', 'images of later changes were')} undone"
    if table.repaired is not None:
        yield f"{counted(table.repaired, 'row was', 'rows were')} corrected before this check"
    if table.is_sampled:
        yield "only a part of the rows was checked"
    if table.since is not None:
        yield f"only keys that changed since {table.since} were checked"
    if table.earlier:
        yield f"{counted(table.earlier, 'row was', 'rows were')} compared earlier, by a check that was interrupted"
    if table.results:
        yield f"results of pipelines that are computed of it: {', '.join(table.results)}"
    for label, names in (("excluded", table.excluded), ("masked", table.masked)):
        if names:
            yield f"not compared because {label}: {', '.join(names)}"


def _chart(table: TableResult) -> Iterator[str]:
    """Draw the chunks over the key range, and whether they are equal."""
    chunks = table.chunks
    if not chunks:
        return
    per_bar = -(-len(chunks) // _BARS)
    groups = [chunks[start : start + per_bar] for start in range(0, len(chunks), per_bar)]
    bars = "".join(_bar(number, group, max(map(_size, groups))) for number, group in enumerate(groups))
    wrong = sum(not chunk.equal for chunk in chunks)
    label = f"{len(chunks):,} {_PARTS[table.by]}, {wrong:,} differ"
    yield f'<p>{label}</p><svg role="img" aria-label="{label}" preserveAspectRatio="none" '
    yield f'viewBox="0 0 {len(groups) * _BAR_WIDTH} {_BAR_HEIGHT + 1 + _MARK_HEIGHT}">{bars}</svg>'
    ends = [chunk.last or chunk.first for chunk in chunks if chunk.last or chunk.first]
    if ends:
        yield f'<div class="ends"><span>first key</span><span>behind {escape(str(ends[-1]))}</span></div>'


def _size(group: Sequence[ChunkResult]) -> int:
    return max(1, sum(max(chunk.source_rows, chunk.lake_rows) for chunk in group))


def _bar(number: int, group: Sequence[ChunkResult], most: int) -> str:
    equal = all(chunk.equal for chunk in group)
    height = max(3, round(_BAR_HEIGHT * _size(group) / most))
    rows = sum(chunk.source_rows for chunk in group)
    text = f"{group[0].first or 'first key'} to {group[-1].last or 'last key'}: {counted(rows, 'row')}"
    # A reader who does not see colours must see that a part differs.
    mark = "" if equal else _rect("off", number, _BAR_HEIGHT + 1, _MARK_HEIGHT)
    return mark + _rect("ok" if equal else "off", number, _BAR_HEIGHT - height, height, text)


def _rect(kind: str, number: int, top: int, height: int, title: str = "") -> str:
    place = f'x="{number * _BAR_WIDTH}" y="{top}" width="{_BAR_WIDTH - 1}" height="{height}"'
    return f'<rect class="{kind}" {place}><title>{escape(title)}</title></rect>'


def _rows(table: TableResult) -> Iterator[str]:
    shown = sorted(table.rows[:_ROWS], key=lambda row: list(Kind).index(row.kind))
    for kind, rows in groupby(shown, key=lambda row: row.kind):
        yield f"<details open><summary>{table.counts.get(kind, 0):,} {kind}</summary>"
        yield '<div class="wide"><table>'
        yield "<tr><th>key</th><th>column</th><th>source</th><th>lake</th></tr>"
        for row in rows:
            yield from _row(row)
        yield "</table></div></details>"
    if len(table.rows) > _ROWS:
        yield f"<p>{counted(len(table.rows) - _ROWS, 'more row is', 'more rows are')} in the JSON report.</p>"


def _row(row: RowDifference) -> Iterator[str]:
    key = ", ".join(f"{name} = {'NULL' if v is None else v}" for name, v in row.key.items()) or "no key"
    later = " (changed later)" if row.later else ""
    columns = row.columns or tuple(row.source or row.lake or ())
    for number, name in enumerate(columns):
        first = (
            f'<td class="value" rowspan="{len(columns)}">{escape(key + later)}</td>' if number == 0 else ""
        )
        cells = "".join(_cell(side, name, is_wrong=bool(row.columns)) for side in (row.source, row.lake))
        yield f"<tr>{first}<td>{escape(name)}</td>{cells}</tr>"


def _cell(side: Mapping[str, str | None] | None, name: str, *, is_wrong: bool) -> str:
    kind = "value wrong" if is_wrong else "value"
    if side is None:
        return '<td class="null">no row</td>'
    value = side[name]
    return f'<td class="{kind}">{"<span class=null>NULL</span>" if value is None else escape(value)}</td>'


def _time(milliseconds: int) -> str:
    return f"{datetime.fromtimestamp(milliseconds / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC"
