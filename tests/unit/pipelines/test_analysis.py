"""What the analysis of a pipeline resolves, and what it says of a query that does not fit the tables."""

import pytest

from replicator.errors import PipelineError
from replicator.pipelines.query.analysis import Analysed, InputSchema, analyse
from replicator.pipelines.query.definition import parse_definition
from replicator.pipelines.query.names import TableName

CHANGE = "struct<kind:string,op:string,source_ts:timestamp,file:string,pos:bigint,row:int,partition:int,offset:bigint>"
SCHEMAS = {
    TableName("shop", "orders"): InputSchema(
        {"id": "bigint", "customerId": "bigint", "v": "decimal(10,2)", "ts": "timestamp"}, ("id",)
    ),
    TableName("shop", "customers"): InputSchema({"id": "bigint", "Country": "string"}, ("id",)),
    TableName("shop_changes", "orders"): InputSchema({"id": "bigint", "v": "int", "_change": CHANGE}),
    TableName("eu", "log"): InputSchema({"id": "bigint", "v": "int"}, ("id",)),
    TableName("us", "log"): InputSchema({"ID": "bigint", "v": "int"}, ("id",)),
    TableName("eu", "odd"): InputSchema({"id": "bigint", "v": "int"}),
    TableName("us", "odd"): InputSchema({"id": "bigint", "v": "string"}),
}


def analysed(sql: str) -> Analysed:
    return analyse(parse_definition(sql, "x", "x.sql", "p"), SCHEMAS)


def refused(sql: str) -> PipelineError:
    with pytest.raises(PipelineError) as found:
        analysed(sql)
    return found.value


@pytest.mark.parametrize(
    ("sql", "columns", "named"),
    [
        ("SELECT ID AS orderId, V FROM shop.orders", ("orderId", "V"), [("id", "v")]),
        ("SELECT * FROM shop.customers", ("id", "Country"), [("id", "Country")]),
        ("SELECT c.* FROM shop.orders o, shop.customers c", ("id", "Country"), [(), ("id", "Country")]),
        ("SELECT count(*) AS n FROM shop.orders", ("n",), [()]),
        ("SELECT v FROM shop.orders WHERE customerid = 3", ("v",), [("customerId", "v")]),
        (
            "SELECT country FROM shop.orders JOIN shop.customers USING (id)",
            ("country",),
            [("id",), ("id", "Country")],
        ),
        ("SELECT _change.kind, _change.offset AS o FROM shop_changes.orders", ("kind", "o"), [("_change",)]),
        (
            (
                "SELECT o.id FROM shop.orders o WHERE EXISTS (SELECT 1 FROM "
                "shop.customers c WHERE c.id = o.customerid)"
            ),
            ("id",),
            [("id", "customerId"), ("id",)],
        ),
        ("WITH p AS (SELECT id AS a, v FROM shop.orders) SELECT a FROM p", ("a",), [("id", "v")]),
        ("SELECT id FROM shop.orders UNION ALL SELECT v FROM eu.log", ("id",), [("id",), ("v",)]),
        (
            "SELECT a.id FROM shop.orders a JOIN shop.orders b ON a.id = b.customerId",
            ("id",),
            [("id", "customerId")],
        ),
    ],
)
def test_columns_are_spelt_and_counted(
    sql: str, columns: tuple[str, ...], named: list[tuple[str, ...]]
) -> None:
    found = analysed(sql)
    assert found.columns == columns
    assert [read.columns for read in found.inputs] == named


def test_a_pattern_is_one_input_with_the_origin_of_its_rows() -> None:
    (read,) = analysed("SELECT _origin, sum(v) AS s FROM `?u`.log GROUP BY _origin").inputs
    assert (str(read.name), [str(table) for table in read.tables]) == ("?u.log", ["eu.log"])
    (read,) = analysed("SELECT _origin, v FROM `*.log`").inputs
    assert [str(table) for table in read.tables] == ["eu.log", "us.log"]
    assert (read.columns, read.schema.key) == (("v", "_origin"), ("_origin", "id"))


def test_the_hidden_column_of_a_result_is_not_read() -> None:
    schemas = {
        TableName("p", "sums"): InputSchema({"k": "int", "s": "bigint", "_state": "struct<rows:bigint>"})
    }
    found = analyse(parse_definition("SELECT * FROM p.sums", "x", "x.sql", "p"), schemas)
    assert found.columns == ("k", "s")


def test_the_query_has_neither_with_nor_named_windows() -> None:
    found = analysed(
        "WITH p AS (SELECT id, v FROM shop.orders), q AS (SELECT * FROM p WHERE v > 1) "
        "SELECT id, sum(v) OVER w AS s, lag(v) OVER w AS l FROM q WINDOW w AS (PARTITION BY id ORDER BY v)"
    ).query.sql("spark")
    assert "WITH" not in found
    assert "WINDOW" not in found
    assert found.count("PARTITION BY `q`.`id` ORDER BY `q`.`v`") == 2


@pytest.mark.parametrize(
    ("sql", "place", "reason", "hint"),
    [
        ("SELECT idd FROM shop.orders", "1:8", "no column idd in shop.orders", "did you mean id?"),
        (
            "SELECT\n  o.custId\nFROM shop.orders o",
            "2:3",
            "no column o.custId in shop.orders",
            "did you mean customerId?",
        ),
        (
            "SELECT zzz FROM shop.customers",
            "1:8",
            "no column zzz in shop.customers",
            "its columns are id, Country",
        ),
        (
            "SELECT id FROM shop.orders, shop.customers",
            "1:8",
            "id is a column of shop.orders and shop.customers",
            "write the table's alias before it: a.id",
        ),
        ("SELECT x.id FROM shop.orders o", "1:8", "no table or alias x in this FROM", None),
        ("SELECT id FROM shop.order", "1:16", "no table shop.order in the lake", "did you mean shop.orders"),
        ("SELECT id FROM `z*`.orders", "1:16", "no table z*.orders in the lake", None),
        ("SELECT id FROM orders", "1:16", "orders is no table of the lake: NAMESPACE.TABLE", None),
        (
            "SELECT id FROM `*`.odd",
            "1:16",
            "eu.odd and us.odd must have equal columns; they differ in v",
            None,
        ),
        (
            "SELECT id, count(*) FROM shop.orders GROUP BY id",
            "1:12",
            "COUNT(*) has no name in the result",
            "add AS and a name",
        ),
        (
            "SELECT id, v AS ID FROM shop.orders",
            "1:12",
            "the result has two columns ID",
            "name one of them otherwise",
        ),
        (
            "SELECT id FROM shop.orders WHERE EXISTS (SELECT 1 FROM shop.customers c WHERE c.idd = 1)",
            "1:79",
            "no column c.idd in shop.customers",
            "did you mean id?",
        ),
        (
            "SELECT customerId, v, count(*) AS n FROM shop.orders GROUP BY customerId",
            "1:20",
            "v is neither in GROUP BY nor in an aggregate",
            "add it to GROUP BY, or take one value of each group, as in max(v)",
        ),
        (
            "SELECT v, count(*) AS n FROM shop.orders",
            "1:8",
            "v is neither in GROUP BY nor in an aggregate",
            None,
        ),
        (
            "SELECT v, count(*) AS n FROM shop.orders WHERE count(*) > 3 GROUP BY v",
            "1:48",
            "WHERE has an aggregate",
            "write it in HAVING, after GROUP BY",
        ),
        (
            "WITH RECURSIVE a AS (SELECT 1 AS x UNION ALL SELECT x FROM a) SELECT x FROM a",
            "1:16",
            "WITH RECURSIVE is not supported",
            None,
        ),
    ],
)
def test_what_does_not_fit_the_tables_is_refused_with_its_place(
    sql: str, place: str, reason: str, hint: str | None
) -> None:
    error = refused(sql)
    assert error.message.startswith(f"x.sql:{place}: {reason}")
    assert error.hint
    if hint:
        assert error.hint.startswith(hint)


@pytest.mark.parametrize(
    ("call", "column"),
    [
        ("now()", 8),
        ("current_timestamp", 8),
        ("current_timestamp()", 8),
        ("current_date", 8),
        ("localtimestamp()", 8),
        ("curdate()", 8),
        ("unix_timestamp()", 8),
        ("v + rand()", 12),
        ("rand(3)", 8),
        ("randn()", 8),
        ("uuid()", 8),
        ("shuffle(array(v))", 8),
        ("monotonically_increasing_id()", 8),
        ("spark_partition_id()", 8),
        ("input_file_name()", 8),
        ("current_user()", 8),
        ("current_database()", 8),
        ("current_timezone()", 8),
        ("version()", 8),
        ("reflect('java.util.UUID', 'randomUUID')", 8),
    ],
)
def test_functions_that_are_none_of_the_rows_are_refused(call: str, column: int) -> None:
    error = refused(f"SELECT id,\n       {call} AS x FROM shop.orders")
    assert error.message.startswith(f"x.sql:2:{column}: ")
    assert error.hint


def test_functions_of_a_given_time_are_not_refused() -> None:
    assert analysed("SELECT unix_timestamp(ts) AS u, date(ts) AS d FROM shop.orders").columns == ("u", "d")


@pytest.mark.parametrize(
    ("header", "reason", "hint"),
    [
        ("-- key: ctry", "x.sql:1: key: the result has no column ctry", "did you mean Country?"),
        (
            "-- partition: days(ts)",
            "x.sql:1: partition: the result has no column ts",
            "its columns are id, Country",
        ),
        ("-- expect a: idd > 0, warn", "x.sql:1: expect a: the result has no column idd", "did you mean id?"),
        (
            "-- expect a: sum(id) > 0, warn",
            "x.sql:1: expect a: SUM(id) is not a value of one row",
            "compute it",
        ),
        (
            "-- expect a: id > rand(), warn",
            "x.sql:1: expect a: RAND() gives other values",
            "derive the value",
        ),
    ],
)
def test_the_header_names_columns_of_the_result(header: str, reason: str, hint: str) -> None:
    error = refused(f"{header}\nSELECT id, Country FROM shop.customers")
    assert error.message.startswith(reason)
    assert error.hint
    assert error.hint.startswith(hint)


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT upper(Country) AS c, count(*) AS n FROM shop.customers GROUP BY upper(Country)",
        "SELECT customerId % 5 + 1 AS c, max(v) - min(v) AS n FROM shop.orders GROUP BY customerId % 5",
        "SELECT customerId AS c, sum(v) FILTER (WHERE id > 3) AS n FROM shop.orders GROUP BY 1",
        "SELECT customerId AS c, kurtosis(v) AS n FROM shop.orders GROUP BY c",
        "SELECT customerId AS c, sum(sum(v)) OVER (PARTITION BY customerId) AS n FROM shop.orders GROUP BY customerId",
        "SELECT customerId, id FROM shop.orders GROUP BY ALL",
        "SELECT id, sum(v) OVER (PARTITION BY customerId) AS n FROM shop.orders",
        "SELECT customerId AS c FROM shop.orders GROUP BY customerId HAVING max(v) > 3 AND customerId > 1",
    ],
)
def test_columns_of_groups_are_not_refused(sql: str) -> None:
    analysed(sql)
