"""Runs the plan of a pipeline in DuckDB, as an executor does in Spark."""

from collections import Counter
from collections.abc import Mapping
from functools import lru_cache

import duckdb
import sqlglot
from sqlglot import exp

from replicator.pipelines.query.analysis import InputSchema
from replicator.pipelines.query.names import TableName
from replicator.pipelines.query.narrow import Narrow, Step
from replicator.pipelines.query.plan import Plan, Rule
from tests.support.pipeline_queries import SCHEMAS, Row

Tables = Mapping[TableName, Counter[Row]]


@lru_cache(maxsize=4096)
def duck(sql: str) -> str:
    """Return SQL of Spark as that of DuckDB."""
    query = sqlglot.parse_one(sql, read="spark")
    for call in list(query.find_all(exp.CountIf)):
        # Of no true value it is null in DuckDB, and 0 in Spark.
        call.replace(exp.Count(this=exp.case().when(call.this, "1")))
    return query.sql("duckdb")


@lru_cache(maxsize=1)
def _database() -> duckdb.DuckDBPyConnection:
    """Return a database for all pipelines of a process, one after the other: a new one takes longer than a query."""
    db = duckdb.connect(config={"threads": 1})
    db.execute("CREATE SCHEMA shop")
    return db


class DuckPipeline:
    """A pipeline and its result.

    Attributes:
        narrows: whether views are narrowed as steps allow.
        schemas: the tables that it may read.
        function: what is called, as a query of DuckDB with places for the views that it gets.
    """

    def __init__(
        self,
        plan: Plan,
        *,
        narrows: bool,
        schemas: Mapping[TableName, InputSchema] = SCHEMAS,
        function: str = "",
    ) -> None:
        self.plan = plan
        self.function = function
        self.schemas = schemas
        self.narrows = narrows
        self.db = _database()
        self.touched = 0

    def build(self, tables: Tables) -> None:
        """Compute the result as a whole."""
        self._load(tables, {name: Counter() for name in tables})
        for step in self.plan.before:
            self.db.execute(f'CREATE OR REPLACE TABLE "{step.view}" AS {self._query(step)}')
        self.db.execute(f'CREATE OR REPLACE TABLE "{self.plan.output}" AS {duck(self.plan.full)}')

    def refresh(self, before: Tables, now: Tables) -> None:
        """Bring the result from one state of the tables to the next."""
        changes = {name: Counter(now[name]) for name in now}
        for name, rows in before.items():
            changes[name].subtract(rows)
        self._load(now, changes)
        if self.plan.rule is Rule.FULL:
            self.db.execute(f'CREATE OR REPLACE TABLE "{self.plan.output}" AS {duck(self.plan.full)}')
            return
        for step in self.plan.steps:
            for narrow in step.narrow if self.narrows else ():
                self._narrow(narrow)
            self.db.execute(f'CREATE OR REPLACE TABLE "{step.view}" AS {self._query(step)}')
            if self.narrows and step.narrow:
                self._register()
        self._apply()

    def rows(self) -> list[Row]:
        """Return the rows of the result."""
        columns = ", ".join(f'"{name}"' for name in self.plan.columns) or "*"
        return self.db.execute(f'SELECT {columns} FROM "{self.plan.output}"').fetchall()

    def expected(self, query: str) -> list[Row]:
        """Return what DuckDB computes for a query over the tables as they are now."""
        return self.db.execute(duck(query)).fetchall()

    def _query(self, step: Step) -> str:
        return self.function.format(*step.call) if step.call else duck(step.sql)

    def _load(self, tables: Tables, changes: Tables) -> None:
        for name, rows in tables.items():
            self._table(f'"shop"."{name.name}"', name, list(rows.elements()))
        self._register()
        for item in self.plan.inputs:
            signed = [
                (*row, 1 if times > 0 else -1)
                for row, times in changes[item.name].items()
                for _ in range(abs(times))
            ]
            self._table(f'"_{item.changed}"', item.name, signed, weight=True)
            columns = ", ".join(f'"{c}"' for c in (*item.columns, "_weight"))
            self.db.execute(
                f'CREATE OR REPLACE VIEW "{item.changed}" AS SELECT {columns} FROM "_{item.changed}"'
            )

    def _register(self) -> None:
        """Register the rows of the inputs as they are, with the named columns only."""
        for item in self.plan.inputs:
            columns = ", ".join(f'"{c}"' for c in item.columns) or "1 AS nothing"
            self.db.execute(
                f'CREATE OR REPLACE VIEW "{item.now}" AS SELECT {columns} FROM "shop"."{item.name.name}"'
            )

    def _table(self, target: str, name: TableName, rows: list[Row], *, weight: bool = False) -> None:
        columns = dict(self.schemas[name].columns) | ({"_weight": "int"} if weight else {})
        types = ", ".join(f'"{c}" {"varchar" if kind == "string" else kind}' for c, kind in columns.items())
        self.db.execute(f"CREATE OR REPLACE TABLE {target} ({types})")
        if rows:
            values = ", ".join(f"({', '.join(_literal(v) for v in row)})" for row in rows)
            self.db.execute(f"INSERT INTO {target} VALUES {values}")

    def _narrow(self, narrow: Narrow) -> None:
        found = next((item for item in self.plan.inputs if item.now == narrow.view), None)
        if found is None:
            return
        wanted = {
            row[0] for row in self.db.execute(f'SELECT "{narrow.by_column}" FROM "{narrow.by}"').fetchall()
        }
        values = ", ".join(_literal(value) for value in wanted if value is not None)
        condition = f'"{narrow.column}" IN ({values})' if values else "FALSE"
        if None in wanted:
            condition += f' OR "{narrow.column}" IS NULL'
        self.db.execute(
            f'CREATE OR REPLACE VIEW "{narrow.view}" AS SELECT * FROM "shop"."{found.name.name}" WHERE {condition}'
        )

    def _apply(self) -> None:
        output, changes = f'"{self.plan.output}"', f'"{self.plan.changes}"'
        db = self.db
        names = self.plan.columns or [row[0] for row in db.execute(f"DESCRIBE {output}").fetchall()]
        columns = ", ".join(f'"{c}"' for c in (*names, *(("_state",) if self.plan.state else ())))
        db.execute(f"CREATE OR REPLACE TABLE _typed AS SELECT *, 0::BIGINT AS _weight FROM {output} LIMIT 0")
        db.execute(f"INSERT INTO _typed BY NAME SELECT * FROM {changes}")
        twice = db.execute(
            f"SELECT count(*) FROM (SELECT 1 FROM _typed GROUP BY {columns} HAVING count(*) > 1)"
        )
        assert twice.fetchall() == [(0,)], "changes are net"
        self.touched += db.execute("SELECT count(*) FROM _typed").fetchall()[0][0]
        db.execute(
            f"CREATE OR REPLACE TABLE _next AS SELECT {columns}, sum(_weight) AS _weight FROM "
            f"(SELECT {columns}, 1 AS _weight FROM {output} UNION ALL SELECT {columns}, _weight FROM _typed) "
            f"GROUP BY {columns} HAVING sum(_weight) <> 0"
        )
        assert db.execute("SELECT count(*) FROM _next WHERE _weight < 0").fetchall() == [(0,)], (
            "a row that is not there"
        )
        db.execute(f"DELETE FROM {output}")
        db.execute(
            f"INSERT INTO {output} SELECT {columns} FROM _next, LATERAL unnest(range(_weight::BIGINT))"
        )


def _literal(value: object) -> str:
    if value is None:
        return "NULL"
    return f"'{value}'" if isinstance(value, str) else str(value)
