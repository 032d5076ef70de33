"""Random queries of what is maintained incrementally, over the tables of a small shop, and random rows of them."""

import random
from dataclasses import dataclass, field
from typing import Final

from replicator.pipelines.query.analysis import InputSchema
from replicator.pipelines.query.names import TableName

Row = tuple[object, ...]

SCHEMAS: Final = {
    TableName("shop", "orders"): InputSchema(
        {"id": "int", "k": "int", "v": "int", "d": "decimal(10,2)", "s": "string", "f": "boolean"}, ("id",)
    ),
    TableName("shop", "items"): InputSchema(
        {"id": "bigint", "k": "int", "w": "bigint", "c": "string"}, ("id",)
    ),
    TableName("shop", "kinds"): InputSchema({"id": "int", "c": "string", "z": "smallint"}, ("id",)),
    TableName("shop", "log"): InputSchema({"k": "int", "w": "bigint", "c": "string"}),
}
"""`log` has no key: rows may be in it several times."""

_KINDS: Final = {
    "int": "int",
    "bigint": "int",
    "smallint": "int",
    "string": "text",
    "boolean": "flag",
    "decimal(10,2)": "money",
}


def random_row(r: random.Random, table: TableName, key: int) -> Row:
    """Return a row with few different values, so that rows match; some are null."""

    def value(kind: str) -> object:
        if r.random() < 0.15:
            return None
        if kind == "string":
            return r.choice("pqr")
        if kind == "boolean":
            return r.random() < 0.5
        return r.randint(0, 500) / 100 if kind.startswith("decimal") else r.randint(0, 4)

    schema = SCHEMAS[table]
    return tuple(key if name in schema.key else value(kind) for name, kind in schema.columns.items())


@dataclass(frozen=True)
class Column:
    """An output column: its name, and what it may be compared with."""

    name: str
    kind: str


@dataclass
class Queries:
    """Makes random queries."""

    r: random.Random
    numbers: int = 0
    ctes: list[str] = field(default_factory=list)

    def query(self) -> str:
        """Return a query."""
        body, _ = self._query(2)
        return f"WITH {', '.join(self.ctes)} {body}" if self.ctes else body

    def _name(self, prefix: str) -> str:
        self.numbers += 1
        return f"{prefix}{self.numbers}"

    def _query(self, depth: int) -> tuple[str, list[Column]]:
        if self.r.random() < 0.15:
            return self._union(depth)
        return self._select(depth)

    def _union(self, depth: int) -> tuple[str, list[Column]]:
        outputs = [
            Column(self._name("u"), kind)
            for kind in self.r.sample(["int", "int", "text"], self.r.randint(1, 3))
        ]
        word = " UNION ALL " if self.r.random() < 0.8 else " UNION "
        return word.join(self._branch(depth, outputs) for _ in range(2)), outputs

    def _branch(self, depth: int, outputs: list[Column]) -> str:
        source, columns = self._from(depth, joins=1)
        picked = [f"{self._of_kind(columns, column.kind)} AS {column.name}" for column in outputs]
        return f"SELECT {', '.join(picked)} FROM {source}{self._where(columns)}"

    def _of_kind(self, columns: list[Column], kind: str) -> str:
        fitting = [c.name for c in columns if c.kind == kind]
        return self.r.choice(fitting) if fitting else "NULL"

    def _select(self, depth: int) -> tuple[str, list[Column]]:
        source, columns = self._from(depth, joins=2)
        shape = self.r.choice(
            [self._plain, self._plain, self._grouped, self._grouped, self._distinct, self._windows]
        )
        return shape(source, columns)

    def _plain(self, source: str, columns: list[Column]) -> tuple[str, list[Column]]:
        picked = self.r.sample(columns, min(len(columns), self.r.randint(1, 5)))
        outputs = [(c.name, Column(self._name("x"), c.kind)) for c in picked]
        if (number := self._of_kind(columns, "int")) != "NULL" and self.r.random() < 0.4:
            outputs.append((f"{number} + 1", Column(self._name("x"), "int")))
        if (text := self._of_kind(columns, "text")) != "NULL" and self.r.random() < 0.2:
            outputs.append((f"coalesce({text}, 'none')", Column(self._name("x"), "text")))
        return self._text("SELECT ", outputs, f"{source}{self._where(columns)}")

    def _distinct(self, source: str, columns: list[Column]) -> tuple[str, list[Column]]:
        picked = self.r.sample(columns, min(len(columns), self.r.randint(1, 2)))
        outputs = [(c.name, Column(self._name("x"), c.kind)) for c in picked]
        return self._text("SELECT DISTINCT ", outputs, f"{source}{self._where(columns)}")

    def _grouped(self, source: str, columns: list[Column]) -> tuple[str, list[Column]]:
        keys = self.r.sample(columns, min(len(columns), self.r.choice([0, 1, 1, 1, 2])))
        outputs = [(c.name, Column(self._name("g"), c.kind)) for c in keys]
        expressions = [c.name for c in keys]
        if keys and keys[0].kind == "int" and self.r.random() < 0.2:
            expressions[0] = f"{expressions[0]} + 1"
            outputs[0] = (expressions[0], outputs[0][1])
        outputs += [self._aggregate(columns) for _ in range(self.r.randint(1, 3))]
        text = f"{source}{self._where(columns)}"
        if expressions:
            text += f" GROUP BY {', '.join(expressions)}"
            if self.r.random() < 0.25:
                text += f" HAVING {self._aggregate(columns, having=True)[0]} > 1"
        return self._text("SELECT ", outputs, text)

    def _aggregate(self, columns: list[Column], *, having: bool = False) -> tuple[str, Column]:
        name = self._name("a")
        numbers = [c.name for c in columns if c.kind in ("int", "money")]
        flags = [c.name for c in columns if c.kind == "flag"]
        texts = [c.name for c in columns if c.kind in ("text", "int")]
        choices = [("count(*)", "int")]
        if texts:
            choices += [
                (f"count({self.r.choice(texts)})", "int"),
                (f"count(DISTINCT {self.r.choice(texts)})", "int"),
            ]
        if numbers:
            number = self.r.choice(numbers)
            choices += [(f"sum({number})", "sum"), (f"avg({number})", "mean"), (f"max({number})", "sum")]
            choices += [
                (f"sum({number}) + count(*)", "sum"),
                (f"sum({number}) FILTER (WHERE {number} > 1)", "sum"),
            ]
        if flags and not having:
            flag = self.r.choice(flags)
            choices += [
                (f"bool_and({flag})", "flag"),
                (f"bool_or({flag})", "flag"),
                (f"count_if({flag})", "int"),
            ]
        if texts and not having:
            text = self.r.choice([c for c in columns if c.kind in ("text", "int")])
            choices += [(f"min({text.name})", text.kind)]
        expression, kind = self.r.choice(choices)
        return expression, Column(name, kind)

    def _windows(self, source: str, columns: list[Column]) -> tuple[str, list[Column]]:
        keys = self.r.sample(columns, min(len(columns), self.r.choice([1, 1, 2])))
        partition = ", ".join(c.name for c in keys)
        # All columns: rows with equal ones are the same row, whatever their order.
        order = ", ".join(c.name for c in self.r.sample(columns, len(columns)))
        others = self.r.sample(columns, min(len(columns), 2))
        outputs = [
            (c.name, Column(self._name("p"), c.kind)) for c in {c.name: c for c in [*keys, *others]}.values()
        ]
        number = self._of_kind(columns, "int")
        functions = [
            ("row_number()", "int"),
            (f"lag({columns[0].name})", columns[0].kind),
            ("count(*)", "int"),
        ]
        if number != "NULL":
            functions += [(f"sum({number})", "sum"), (f"first_value({number})", "int")]
        for function, kind in self.r.sample(functions, self.r.randint(1, 2)):
            over = f"{function} OVER (PARTITION BY {partition} ORDER BY {order})"
            outputs.append((over, Column(self._name("w"), kind)))
        text, found = self._text("SELECT ", outputs, f"{source}{self._where(columns)}")
        if (last := found[-1]).kind == "int" and self.r.random() < 0.5:
            alias = self._name("t")
            names = ", ".join(f"{alias}.{c.name}" for c in found)
            return f"SELECT {names} FROM ({text}) AS {alias} WHERE {alias}.{last.name} = 1", found
        return text, found

    def _text(self, word: str, outputs: list[tuple[str, Column]], rest: str) -> tuple[str, list[Column]]:
        columns = [column for _, column in outputs]
        return f"{word}{', '.join(f'{e} AS {c.name}' for e, c in outputs)} FROM {rest}", columns

    # FROM and WHERE.

    def _source(self, depth: int) -> tuple[str, list[Column]]:
        alias = self._name("t")
        if depth > 0 and self.r.random() < 0.25:
            text, columns = self._query(depth - 1)
            if self.r.random() < 0.3:
                cte = self._name("cte")
                self.ctes.append(f"{cte} AS ({text})")
                text = cte
            else:
                text = f"({text})"
        else:
            table = self.r.choice(list(SCHEMAS))
            text = str(table)
            columns = [Column(name, _KINDS[kind]) for name, kind in SCHEMAS[table].columns.items()]
        return f"{text} AS {alias}", [Column(f"{alias}.{c.name}", c.kind) for c in columns]

    def _from(self, depth: int, joins: int) -> tuple[str, list[Column]]:
        text, columns = self._source(depth)
        for _ in range(self.r.choice(range(joins + 1))):
            other, its = self._source(depth)
            join = self.r.choice(
                [
                    "JOIN",
                    "JOIN",
                    "LEFT JOIN",
                    "LEFT JOIN",
                    "RIGHT JOIN",
                    "FULL JOIN",
                    "LEFT SEMI JOIN",
                    "LEFT ANTI JOIN",
                ]
            )
            equal = self._equal(columns, its)
            if equal is None:
                continue
            on = equal
            if self.r.random() < 0.2 and (extra := self._comparison([*columns, *its])):
                on += f" AND {extra}"
            text += f" {join} {other} ON {on}"
            if "SEMI" not in join and "ANTI" not in join:
                columns = [*columns, *its]
        return text, columns

    def _equal(self, columns: list[Column], its: list[Column]) -> str | None:
        pairs = [(a, b) for a in columns for b in its if a.kind == b.kind and a.kind in ("int", "text")]
        if not pairs:
            return None
        a, b = self.r.choice(pairs)
        if self.r.random() < 0.07:
            none = "0" if a.kind == "int" else "'none'"
            return f"coalesce({a.name}, {none}) = {b.name}"
        return f"{a.name} = {b.name}"

    def _comparison(self, columns: list[Column]) -> str | None:
        numbers = [c.name for c in columns if c.kind == "int"]
        choices = [f"{self.r.choice(columns).name} IS {self.r.choice(['', 'NOT '])}NULL"]
        if numbers:
            choices += [f"{self.r.choice(numbers)} {self.r.choice(['<', '>=', '='])} {self.r.randint(0, 4)}"]
            choices += [f"coalesce({self.r.choice(numbers)}, 1) < {self.r.choice(numbers)}"]
        return self.r.choice(choices)

    def _where(self, columns: list[Column]) -> str:
        conditions = [self._comparison(columns)] if self.r.random() < 0.35 else []
        if self.r.random() < 0.15:
            conditions.append(self._subquery(columns))
        found = [c for c in conditions if c]
        return f" WHERE {' AND '.join(found)}" if found else ""

    def _subquery(self, columns: list[Column]) -> str | None:
        inner, its = self._from(0, joins=1)
        equal = self._equal(columns, its)
        if equal is None or not columns:
            return None
        if self.r.random() < 0.3:
            keys = [(a, b) for a in columns for b in its if a.kind == b.kind == "int"]
            if keys:
                a, b = self.r.choice(keys)
                having = (
                    f" GROUP BY {b.name} HAVING count(*) > 1"
                    if self.r.random() < 0.5
                    else self._where_plain(its)
                )
                return f"{a.name} IN (SELECT {b.name} AS i FROM {inner}{having})"
        extra = self._comparison([*columns, *its]) if self.r.random() < 0.5 else None
        condition = f"{equal} AND {extra}" if extra else equal
        return f"{self.r.choice(['', 'NOT '])}EXISTS (SELECT 1 AS one FROM {inner} WHERE {condition})"

    def _where_plain(self, columns: list[Column]) -> str:
        found = self._comparison(columns)
        return f" WHERE {found}" if found else ""
