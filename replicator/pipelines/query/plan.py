"""How the result of a pipeline is brought up to date: the SQL that an executor runs, and in which order.

An executor registers views, runs `Plan.steps` in order, each under its name, and applies the rows of the last one to the
table of the result. All SQL is Spark's. The names of views are plain words and begin with the name of the pipeline.

Of each input (`Plan.inputs`) there are the views

    now      its rows at the position of the refresh
    changed  a row for each row that appeared (`_weight` = 1) or went (`_weight` = -1) since the last refresh; an update
             is two rows. So `now` without `changed` are the rows before. Updates of other columns than the named ones
             may be left out. Inputs that only grow have rows with 1 only.

with at least the columns that the query names (`Input.columns`), in any letter case. An input that is a pattern has the
rows of all its tables, and their name as `_origin`. The view `Plan.output` has the rows of the result before the refresh,
with its hidden column.

The last step, `Plan.changes`, gives rows with the columns of the result, its hidden column `_state` if `Plan.state`, and
`_weight`: so many copies of this row appear, or go if below 0. It is net: no row is in it twice. If the result has a
key, an update is two rows with the same key, and a weight other than 1 or -1 or two rows of one key that appear
tell that the key does not identify rows. Values must be cast to the types of the result's table, which are those of
`Plan.full`, the query for the whole result over the views `now`.

Checks count over the rows of `Plan.checked` with a weight above 0: they have those too that `drop` leaves out.
"""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import count
from typing import Final

from sqlglot import exp

from replicator.errors import PipelineError
from replicator.model.common import quoted
from replicator.pipelines.query.affected import Branch, branches
from replicator.pipelines.query.analysis import Analysed
from replicator.pipelines.query.blocks import NotMaintained, conjuncts, known, parts, side_of, unnested
from replicator.pipelines.query.definition import DIALECT, Action, Expectation, Refresh
from replicator.pipelines.query.names import TableName
from replicator.pipelines.query.narrow import Equal, Narrow, Start, Step, equalities, narrowed
from replicator.pipelines.query.signed import (
    STATE,
    WEIGHT,
    Invertible,
    Part,
    changes,
    check_linear,
    invertible,
    over_now,
    sources_of,
    struct,
)

_VERSION: Final = 1
"""Of the rules: a result of another version is computed anew."""


class Rule(StrEnum):
    """How a result is brought up to date."""

    SIGNED = "signed"
    """By adding the changes of the inputs."""
    AFFECTED = "affected"
    """By computing the rows anew that changes may have touched."""
    FULL = "full"
    """As a whole."""


@dataclass(frozen=True, slots=True)
class Input:
    """An input of a pipeline, with the names of its views."""

    name: TableName
    tables: tuple[TableName, ...]
    columns: tuple[str, ...]
    key: tuple[str, ...]
    now: str
    changed: str


@dataclass(frozen=True, slots=True)
class Plan:
    """How a result is brought up to date; see the top of this module.

    Attributes:
        rule: the rule by which it is.
        reason: why not by a cheaper one; None for the cheapest.
        columns: the columns of the result, without the hidden one.
        key: the columns that identify a row; empty if rows have no key.
        unit: the columns of which the rows are computed anew for the values that changes touched, by `Rule.AFFECTED`.
        state: whether the result has the hidden column.
        full: the query for the whole result.
        full_unchecked: the same with the rows that `drop` leaves out.
        steps: the queries of a refresh; none if it computes `full`.
        fingerprint: a hash of all that decides the rows; a result of another one must be computed anew.
    """

    pipeline: str
    rule: Rule
    reason: str | None
    inputs: tuple[Input, ...]
    columns: tuple[str, ...]
    key: tuple[str, ...]
    unit: tuple[str, ...]
    state: bool
    output: str
    full: str
    full_unchecked: str
    steps: tuple[Step, ...]
    changes: str
    checked: str
    checks: tuple[Expectation, ...]
    fingerprint: str


def plan_of(analysed: Analysed) -> Plan:
    """Choose how the result of a pipeline is brought up to date.

    Raises:
        PipelineError: the pipeline demands that it is by what changed, and that is impossible.
    """
    definition = analysed.definition
    planner = _Planner(analysed)
    if definition.refresh is Refresh.FULL:
        return planner.full("the file says refresh: full")
    try:
        planner.refuse_unchanging()
        return planner.maintained()
    except NotMaintained as error:
        refused = definition.error(error.node, f"cannot be maintained incrementally: {error.reason}", _hint(error))
        if definition.refresh is Refresh.INCREMENTAL:
            raise refused from None
        return planner.full(refused.message)


def _hint(error: NotMaintained) -> str:
    otherwise = "write -- refresh: auto in the header to compute it as a whole"
    return f"{error.hint}; or {otherwise}" if error.hint else otherwise


class _Planner:
    """Makes the plan of one pipeline."""

    def __init__(self, analysed: Analysed) -> None:
        self.analysed = analysed
        self.query = analysed.query
        self.definition = analysed.definition
        self.inputs = tuple(
            Input(
                read.name,
                read.tables,
                read.columns,
                read.schema.key,
                self.view(f"in{n}_now"),
                self.view(f"in{n}_changed"),
            )
            for n, read in enumerate(analysed.inputs)
        )
        self.output = self.view("output")
        self._numbers = count()
        self.drops = [e.condition for e in self.definition.expectations if e.action is Action.DROP]

    def view(self, name: str) -> str:
        """Return the name of a view of this pipeline."""
        return f"{self.definition.name}__{name}"

    # What queries read in the place of tables.

    def input_of(self, table: exp.Table) -> Input:
        """Return the input that a table of the query is."""
        return self.inputs[self.analysed.inputs.index(self.analysed.input_of(table))]

    def now(self, table: exp.Table) -> exp.Expr:
        """Return the rows after the changes."""
        return _table(self.input_of(table).now)

    def changed(self, table: exp.Table) -> exp.Expr:
        """Return the changes."""
        return _table(self.input_of(table).changed)

    def either(self, table: exp.Table, columns: Sequence[str]) -> exp.Expr:
        """Return columns of the rows before or after the changes."""
        found = self.input_of(table)
        names = ", ".join(quoted(c) for c in columns) or "1 AS _1"
        text = (
            f"SELECT {names} FROM {quoted(found.now)} UNION ALL "
            f"SELECT {names} FROM {quoted(found.changed)} WHERE {quoted(WEIGHT)} < 0"
        )
        return exp.Subquery(this=exp.maybe_parse(text, dialect=DIALECT))

    def types(self, table: exp.Table) -> Mapping[str, str]:
        """Return the types of the named columns."""
        read = self.analysed.input_of(table)
        used = {name.lower() for name in read.columns}
        return {name.lower(): kind for name, kind in read.schema.columns.items() if name.lower() in used}

    # Plans.

    def refuse_unchanging(self) -> None:
        """Refuse inputs of which the changes are not known.

        Raises:
            NotMaintained: there is one.
        """
        for read in self.analysed.inputs:
            if not read.schema.has_changelog:
                hint = "add changelog = true to its [[table]] in the configuration"
                raise NotMaintained(f"{read.name} has no changelog", read.node, hint)

    def maintained(self) -> Plan:
        """Return the plan of the cheapest rule that applies.

        Raises:
            NotMaintained: none applies.
        """
        try:
            return self._signed()
        except NotMaintained as error:
            place = self.definition.error(error.node, "").message.removesuffix(": ")
            reason = f"changes cannot be added because of {error.reason} ({place})"
        return self._affected(reason)

    def full(self, reason: str) -> Plan:
        """Return the plan to compute the result as a whole."""
        return self._plan(Rule.FULL, reason, (), None)

    def _plan(
        self,
        rule: Rule,
        reason: str | None,
        steps: Sequence[Step],
        grouped: Invertible | None,
        unit: Sequence[str] = (),
    ) -> Plan:
        query = over_now(grouped.with_state() if grouped else self.query, self)
        unchecked = f"SELECT {self._spelt('_q', grouped is not None)} FROM ({query.sql(DIALECT)}) AS _q"
        full = unchecked
        last = steps[-1].view if steps else ""
        if self.drops:
            full = f"SELECT * FROM ({unchecked}) AS _r WHERE {self._kept()}"
            if steps:
                sql = f"SELECT * FROM {quoted(last)} WHERE {self._kept()}"
                steps = [*steps, Step(self.view("changes"), sql)]
        return Plan(
            pipeline=self.definition.name,
            rule=rule,
            reason=reason,
            inputs=self.inputs,
            columns=self.analysed.columns,
            key=self.definition.key,
            unit=tuple(unit),
            state=grouped is not None,
            output=self.output,
            full=full,
            full_unchecked=unchecked,
            steps=tuple(steps),
            changes=steps[-1].view if steps else "",
            checked=last,
            checks=self.definition.expectations,
            fingerprint=self._fingerprint(rule, grouped),
        )

    def _fingerprint(self, rule: Rule, grouped: Invertible | None) -> str:
        fields = "" if grouped is None else repr([(t.name, t.value.sql(DIALECT), t.sum) for t in grouped.terms])
        inputs = [(str(read.name), sorted(str(t) for t in read.tables)) for read in self.analysed.inputs]
        text = "\n".join(
            [
                str(_VERSION),
                rule if grouped else "",
                fields,
                repr(inputs),
                self.query.sql(DIALECT, comments=False),
                repr([c.lower() for c in self.analysed.columns]),
                repr(sorted(c.lower() for c in self.definition.key)),
                repr(sorted(self.drops)),
            ]
        )
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def _spelt(self, alias: str, state: bool) -> str:
        """Return the columns of the result by name, as they are spelt."""
        pairs = zip(self.query.named_selects, self.analysed.columns, strict=True)
        columns = [f"{alias}.{quoted(name)} AS {quoted(spelt)}" for name, spelt in pairs]
        return ", ".join([*columns, *([f"{alias}.{quoted(STATE)}"] if state else [])])

    def _kept(self) -> str:
        """Return the condition of the rows that no `drop` leaves out."""
        return " AND ".join(f"COALESCE(({condition}), FALSE)" for condition in self.drops)

    # Signed changes.

    def _signed(self) -> Plan:
        query = unnested(self.query)
        try:
            check_linear(query)
        except NotMaintained:
            grouped = invertible(query, self)
            if self.drops:
                line = next(e for e in self.definition.expectations if e.action is Action.DROP)
                reason = f"the check {line.name} in line {line.line}, which leaves out groups that may come back"
                raise NotMaintained(reason, query) from None
            return self._plan(Rule.SIGNED, None, self._grouped(grouped), grouped)
        return self._plan(Rule.SIGNED, None, self._linear(query), None)

    def _parts(self, query: exp.Expr) -> list[Step]:
        """Return the steps for the changes of a linear query: those that are its parts, and what narrows them."""
        found: list[Step] = []
        for number, part in enumerate(changes(query, self)):
            sql = part.query.sql(DIALECT)
            steps, narrows = self._narrowed_part(part, sql)
            found += [*steps, Step(self.view(f"part{number}"), sql, narrow=narrows)]
        return found

    def _narrowed_part(self, part: Part, sql: str) -> tuple[list[Step], tuple[Narrow, ...]]:
        tables = {s.alias_or_name: s for s in sources_of(part.select) if isinstance(s, exp.Table)}
        if part.changed not in tables:
            return [], ()
        where = part.select.args.get("where")
        conditions = conjuncts(where.this if where else None)
        for join in part.select.args.get("joins") or ():
            conditions += conjuncts(join.args.get("on"))
        start = [Start(part.changed, self.input_of(tables[part.changed]).changed)]
        return narrowed(sql, start, equalities(conditions), self._views(tables, removed=True), self._keys_view)

    def _linear(self, query: exp.Expr) -> list[Step]:
        steps = self._parts(query)
        rows = " UNION ALL ".join(
            f"SELECT {self._spelt('_p', state=False)}, _p.{quoted(WEIGHT)} AS _w FROM {quoted(s.view)} AS _p"
            for s in steps
            if not s.keep
        )
        return [*steps, self._net(rows)]

    def _net(self, rows: str) -> Step:
        """Return the step for the net changes, from rows with their weights as `_w`."""
        columns = ", ".join(quoted(c) for c in self.analysed.columns)
        sql = (
            f"SELECT {columns}, CAST(SUM(_w) AS BIGINT) AS {quoted(WEIGHT)} FROM ({rows}) AS _c "
            f"GROUP BY {columns} HAVING SUM(_w) <> 0"
        )
        return Step(self.view("net"), sql, keep=True)

    def _grouped(self, grouped: Invertible) -> list[Step]:
        steps = self._parts(grouped.rows())
        return [*steps, self._delta(grouped, [s.view for s in steps if not s.keep]), *self._merged(grouped)]

    def _delta(self, grouped: Invertible, views: Sequence[str]) -> Step:
        """Return the step for the changes of the states of groups."""
        union = " UNION ALL ".join(f"SELECT * FROM {quoted(view)}" for view in views)
        keys = [f"_c.{quoted(name)}" for name in grouped.keys]
        weight = exp.column(WEIGHT, "_c", quoted=True)
        sums = {"rows": f"COALESCE(SUM(_c.{quoted(WEIGHT)}), 0)"}
        for term in grouped.terms:
            value = exp.column(f"_{term.name}", "_c", quoted=True)
            sums[term.name] = term.of_changes(value, weight).sql(DIALECT)
        columns = [f"{key} AS _k{n}" for n, key in enumerate(keys)]
        columns += [f"{sql} AS {quoted(name)}" for name, sql in sums.items()]
        some = " OR ".join(f"{sql} <> 0" for sql in sums.values())
        group = f" GROUP BY {', '.join(keys)}" if keys else ""
        sql = f"SELECT {', '.join(columns)} FROM ({union}) AS _c{group} HAVING {some}"
        return Step(self.view("delta"), sql, keep=True)

    def _merged(self, grouped: Invertible) -> Iterator[Step]:
        """Yield the steps that add the changes of states to those in the result."""
        delta, merged = self.view("delta"), self.view("merged")
        spelling = dict(zip(self.query.named_selects, self.analysed.columns, strict=True))
        numbers = {name: n for n, name in enumerate(grouped.keys)}
        same = " AND ".join(f"_o.{quoted(spelling[k])} <=> _d._k{n}" for k, n in numbers.items()) or "TRUE"
        narrow = tuple(Narrow(self.output, spelling[k], delta, f"_k{n}") for k, n in numbers.items())
        types = {"rows": "BIGINT", **{t.name: t.sum.sql if t.sum else "BIGINT" for t in grouped.terms}}
        fields = [
            f"CAST(COALESCE(_o.{quoted(STATE)}.{quoted(name)}, 0) + _d.{quoted(name)} AS {kind}) AS {quoted(name)}"
            for name, kind in types.items()
        ]
        columns = [*(f"_d._k{n}" for n in numbers.values()), *fields]
        sql = (
            f"SELECT {', '.join(columns)} FROM {quoted(delta)} AS _d "
            f"LEFT JOIN {quoted(self.output)} AS _o ON {same}"
        )
        yield Step(merged, sql, keep=True, narrow=narrow)
        state = struct([(name, exp.column(name, "state", quoted=True)) for name in types]).sql(DIALECT)
        outputs = [
            f"{f'state._k{numbers[name]}' if name in numbers else grouped.results[name].sql(DIALECT)} AS {quoted(spelt)}"
            for name, spelt in spelling.items()
        ]
        filled = " WHERE state.`rows` > 0" if numbers else ""
        before = ", ".join(f"_o.{quoted(c)}" for c in (*self.analysed.columns, STATE))
        sql = (
            f"SELECT {', '.join(outputs)}, {state} AS {quoted(STATE)}, CAST(1 AS BIGINT) AS {quoted(WEIGHT)} "
            f"FROM {quoted(merged)} AS state{filled} UNION ALL "
            f"SELECT {before}, CAST(-1 AS BIGINT) AS {quoted(WEIGHT)} FROM {quoted(self.output)} AS _o "
            f"LEFT SEMI JOIN {quoted(delta)} AS _d ON {same}"
        )
        yield Step(self.view("net"), sql, keep=True, narrow=narrow)

    # Affected keys.

    def _affected(self, reason: str) -> Plan:
        refused: NotMaintained | None = None
        for unit in self._units():
            try:
                found = branches(self.query, unit, self)
            except NotMaintained as error:
                refused = refused or error
                continue
            return self._plan(Rule.AFFECTED, reason, self._recomputed(unit, found), None, unit)
        raise refused or NotMaintained(
            "changes tell no part of the result that they touch",
            self.query,
            "GROUP BY columns that are in the result, or give its window functions a PARTITION BY",
        )

    def _units(self) -> Iterator[tuple[str, ...]]:
        """Yield the columns by which the result may be divided, the best ones first."""
        possible = known(self.query)
        names = [name for name in self.query.named_selects if name in possible]
        wanted = [key.lower() for key in self.definition.key]
        candidates = [tuple(n for n in names if n in wanted), self._input_key(names), tuple(names)]
        candidates += [(name,) for name in names]
        yield from dict.fromkeys(candidate for candidate in candidates if candidate)

    def _input_key(self, names: Sequence[str]) -> tuple[str, ...]:
        """Return the columns of the result that are the key of its first input with one; none if there are not."""
        query = unnested(self.query)
        if not isinstance(query, exp.Select):
            return ()
        for source in sources_of(query):
            if isinstance(source, exp.Table):
                key = {name.lower() for name in self.input_of(source).key}
                columns = {e.alias_or_name: e.unalias() for e in query.selects if e.alias_or_name in names}
                of_key = {
                    c.name: n
                    for n, c in columns.items()
                    if isinstance(c, exp.Column) and c.table == source.alias_or_name and c.name in key
                }
                if key and key == of_key.keys():
                    return tuple(of_key.values())
        return ()

    def _recomputed(self, unit: Sequence[str], found: Sequence[Branch]) -> list[Step]:
        steps: list[Step] = []
        views: list[str] = []
        for number, branch in enumerate(found):
            sql = branch.query.sql(DIALECT)
            before, narrows = self._narrowed_branch(branch, sql)
            views.append(self.view(f"affected{number}"))
            steps += [*before, Step(views[-1], sql, narrow=narrows)]
        affected = self.view("affected")
        columns = ", ".join(quoted(name) for name in unit)
        union = " UNION ".join(f"SELECT {columns} FROM {quoted(view)}" for view in views)
        steps.append(Step(affected, f"SELECT DISTINCT {columns} FROM ({union}) AS _u", keep=True))
        return [*steps, *self._rows(unit, affected), *self._replaced(unit, affected)]

    def _narrowed_branch(self, branch: Branch, sql: str) -> tuple[list[Step], tuple[Narrow, ...]]:
        tables = {s.alias: s.query for s in branch.sources if isinstance(s.query, exp.Table)}
        if branch.changed.alias not in tables:
            return [], ()
        start = [Start(branch.changed.alias, self.input_of(tables[branch.changed.alias]).changed)]
        views = self._views(tables, removed=True)
        return narrowed(sql, start, equalities(branch.conditions), views, self._keys_view)

    def _rows(self, unit: Sequence[str], affected: str) -> Iterator[Step]:
        """Yield the steps for the rows of the affected units as they are now."""
        same = " AND ".join(f"_q.{quoted(name)} <=> _k.{quoted(name)}" for name in unit)
        query = over_now(self.query, self)
        sql = (
            f"SELECT {self._spelt('_q', state=False)} FROM ({query.sql(DIALECT)}) AS _q "
            f"LEFT SEMI JOIN {quoted(affected)} AS _k ON {same}"
        )
        steps, narrows = self._narrowed_rows(sql, unit, affected)
        yield from steps
        yield Step(self.view("rows"), sql, narrow=narrows)

    def _narrowed_rows(self, sql: str, unit: Sequence[str], affected: str) -> tuple[list[Step], tuple[Narrow, ...]]:
        steps: list[Step] = []
        narrows: list[Narrow] = []
        for select, columns in _origins(self.query, {name: name for name in unit}):
            tables = {s.alias_or_name: s for s in sources_of(select) if isinstance(s, exp.Table)}
            start = [Start(c.table, affected, c.name, name) for name, c in columns.items() if c.table in tables]
            more, its = narrowed(sql, start, _downstream(select), self._views(tables, removed=False), self._keys_view)
            steps += more
            narrows += its
        return steps, tuple(narrows)

    def _replaced(self, unit: Sequence[str], affected: str) -> Iterator[Step]:
        """Yield the steps for the differences between the affected units now and before."""
        spelling = dict(zip(self.query.named_selects, self.analysed.columns, strict=True))
        same = " AND ".join(f"_o.{quoted(spelling[name])} <=> _k.{quoted(name)}" for name in unit)
        columns = ", ".join(quoted(c) for c in self.analysed.columns)
        narrow = tuple(Narrow(self.output, spelling[name], affected, name) for name in unit)
        sql = (
            f"SELECT {columns} FROM {quoted(self.output)} AS _o "
            f"LEFT SEMI JOIN {quoted(affected)} AS _k ON {same}"
        )
        yield Step(self.view("old"), sql, narrow=narrow)
        rows, old = quoted(self.view("rows")), quoted(self.view("old"))
        yield self._net(f"SELECT {columns}, 1 AS _w FROM {rows} UNION ALL SELECT {columns}, -1 AS _w FROM {old}")

    def _views(self, tables: Mapping[str, exp.Table], *, removed: bool) -> dict[str, tuple[str, ...]]:
        """Return the views with the rows of tables, by alias; `removed`: also those with their rows before changes."""
        inputs = {alias: self.input_of(table) for alias, table in tables.items()}
        return {alias: (i.now, i.changed) if removed else (i.now,) for alias, i in inputs.items()}

    def _keys_view(self) -> str:
        return self.view(f"keys{next(self._numbers)}")


def _table(view: str) -> exp.Table:
    return exp.Table(this=exp.to_identifier(view, quoted=True))


def _origins(
    query: exp.Expr, unit: Mapping[str, str]
) -> Iterator[tuple[exp.Select, dict[str, exp.Column]]]:
    """Yield the SELECTs whose rows a restriction of the unit restricts, and the columns that are columns of the unit.

    `unit` are columns of the result by those of the query.
    """
    query = unnested(query)
    if isinstance(query, exp.SetOperation):
        for part in parts(query):
            places = {n: unit[name] for n, name in enumerate(query.named_selects) if name in unit}
            yield from _origins(part, {part.named_selects[n]: name for n, name in places.items()})
        return
    if not isinstance(query, exp.Select):
        return
    possible, nullable = known(query), _nullable(query)
    found: dict[str, exp.Column] = {}
    for expression in query.selects:
        column, name = expression.unalias(), expression.alias_or_name
        if name in unit and name in possible and isinstance(column, exp.Column) and column.table not in nullable:
            found[unit[name]] = column
    yield query, found
    for source in sources_of(query):
        if isinstance(source, exp.Subquery):
            inner = {c.name: name for name, c in found.items() if c.table == source.alias_or_name}
            if inner:
                yield from _origins(source.this, inner)


def _nullable(select: exp.Select) -> set[str]:
    """Return the sources whose columns may be null because an outer join found no row."""
    sources = [s.alias_or_name for s in sources_of(select)]
    found: set[str] = set()
    for number, join in enumerate(select.args.get("joins") or (), 1):
        side = side_of(join)
        if side in ("LEFT", "FULL"):
            found.add(sources[number])
        if side in ("RIGHT", "FULL"):
            found |= set(sources[:number])
    return found


def _downstream(select: exp.Select) -> list[Equal]:
    """Return equal columns of joins: those by which a source may be narrowed without a change of other rows."""
    found: list[Equal] = []
    joins = select.args.get("joins") or []
    if any(side_of(join) in ("RIGHT", "FULL") for join in joins):
        return []
    where = select.args.get("where")
    inner = conjuncts(where.this if where else None)
    nullable: set[str] = set()
    for join in joins:
        alias, side = join.this.alias_or_name, side_of(join)
        if side == "INNER":
            inner += conjuncts(join.args.get("on"))
            continue
        nullable.add(alias)
        found += [e for e in equalities(conjuncts(join.args.get("on"))) if e.alias == alias and e.by not in nullable]
    strict = [e for e in equalities(inner) if e.alias not in nullable and e.by not in nullable]
    return [*strict, *found]


def explain_error(error: PipelineError) -> str:
    """Return an error with its next step."""
    return f"{error.message}\n  {error.hint}" if error.hint else error.message
