"""Queries of every shape that is maintained incrementally, over the tables of `pipeline_queries`."""

from typing import Final

SHAPES: Final = {
    # Linear
    "filter": "SELECT id, v + 1 AS w FROM shop.orders WHERE v > 2",
    "bag": "SELECT k, c FROM shop.log WHERE w IS NOT NULL",
    "union all": "SELECT k, v FROM shop.orders UNION ALL SELECT k, w FROM shop.items WHERE w > 1",
    "inner joins": (
        "SELECT o.id, i.c, k.z FROM shop.orders o JOIN shop.items i "
        "ON o.k = i.k JOIN shop.kinds k ON i.c = k.c"
    ),
    "inequality": "SELECT o.id, i.id AS j FROM shop.orders o JOIN shop.items i ON o.k = i.k AND o.v < i.w",
    "cross join": "SELECT o.id, k.z FROM shop.orders o, shop.kinds k WHERE o.v = k.z",
    "self join": (
        "SELECT a.k, count(*) AS n FROM shop.orders a JOIN "
        "shop.orders b ON a.k = b.k AND a.id < b.id GROUP BY a.k"
    ),
    # Aggregates that changes are added to
    "sums": (
        "SELECT k, count(*) AS n, count(v) AS c, sum(v) AS s, avg(v) AS m, "
        "sum(d) AS t, avg(d) AS a FROM shop.orders GROUP BY k"
    ),
    "flags": "SELECT s, bool_and(f) AS a, bool_or(f) AS o, count_if(f) AS n FROM shop.orders GROUP BY s",
    "expressions": "SELECT k + 1 AS k1, sum(v * 2) + count(*) AS x FROM shop.orders GROUP BY k + 1",
    "filtered": (
        "SELECT k, sum(v) FILTER (WHERE v > 1) AS s, count(*) FILTER "
        "(WHERE f) AS n FROM shop.orders GROUP BY k"
    ),
    "one row": "SELECT count(*) AS n, sum(v) AS s FROM shop.orders WHERE v > 2",
    "joined sums": (
        "SELECT i.c, sum(o.v * i.w) AS s, avg(i.w) AS m FROM "
        "shop.orders o JOIN shop.items i ON o.k = i.k GROUP BY i.c"
    ),
    "distinct": "SELECT DISTINCT k, c FROM shop.items",
    "sum of parts": (
        "SELECT u.k, count(*) AS n, sum(u.v) AS s FROM "
        "(SELECT k, v FROM shop.orders UNION ALL SELECT k, v FROM shop.orders WHERE v > 1) u GROUP BY u.k"
    ),
    "stages": (
        "WITH p AS (SELECT k, v, s FROM shop.orders WHERE v IS NOT "
        "NULL) SELECT s, sum(v) AS t FROM p GROUP BY s"
    ),
    # Aggregates of affected groups
    "having": "SELECT k, count(*) AS n, min(s) AS m FROM shop.orders GROUP BY k HAVING count(*) > 1",
    "count distinct": "SELECT k, s, count(DISTINCT v) AS n FROM shop.orders WHERE v < 4 GROUP BY k, s",
    "group of two": (
        "SELECT o.s, i.c, min(o.v) AS m FROM shop.orders o JOIN shop.items i ON o.k = i.k GROUP BY o.s, i.c"
    ),
    "nested": (
        "SELECT t.k, max(t.n) AS m FROM (SELECT k, c, count(*) AS n "
        "FROM shop.items GROUP BY k, c) t GROUP BY t.k"
    ),
    "joined groups": (
        "SELECT o.s, sum(t.n) AS n FROM shop.orders o JOIN (SELECT k, "
        "count(*) AS n FROM shop.items GROUP BY k) t "
        "ON o.k = t.k WHERE t.n > 1 GROUP BY o.s"
    ),
    # Outer joins
    "lookup": "SELECT o.id, o.v, k.z FROM shop.orders o LEFT JOIN shop.kinds k ON o.k = k.id",
    "lookups": (
        "SELECT o.id, i.c, k.z FROM shop.orders o LEFT JOIN shop.items i "
        "ON o.id = i.id LEFT JOIN shop.kinds k ON i.c = k.c"
    ),
    "condition of one side": (
        "SELECT o.id, i.c FROM shop.orders o LEFT JOIN shop.items i ON o.k = i.k AND o.v > 2"
    ),
    "not found": "SELECT o.id, o.s FROM shop.orders o LEFT JOIN shop.items i ON o.k = i.k WHERE i.id IS NULL",
    "not found of group": (
        "SELECT o.s, count(*) AS n FROM shop.orders o LEFT JOIN shop.items i ON o.k = i.k AND i.w > 2 "
        "WHERE i.id IS NULL OR o.v > 2 GROUP BY o.s"
    ),
    "nulls in ON": (
        "SELECT o.id, k.z FROM shop.orders o LEFT JOIN shop.items i ON o.id = i.id "
        "LEFT JOIN shop.kinds k ON o.s = k.c AND i.w IS NULL"
    ),
    "right": (
        "SELECT i.c, count(*) AS n, sum(o.v) AS s FROM shop.orders o "
        "RIGHT JOIN shop.items i ON o.k = i.k GROUP BY i.c"
    ),
    "full": (
        "SELECT i.c, o.s, count(*) AS n FROM shop.orders o FULL JOIN "
        "shop.items i ON o.k = i.k GROUP BY i.c, o.s"
    ),
    "full of sums": (
        "WITH x AS (SELECT k, sum(v) AS s FROM shop.orders GROUP BY k), y AS "
        "(SELECT k, sum(w) AS s FROM shop.items GROUP BY k) "
        "SELECT coalesce(x.k, y.k) AS k, x.s AS s1, y.s AS s2 FROM x FULL JOIN y ON x.k = y.k"
    ),
    "outer chain": (
        "SELECT k.z, i.c, count(*) AS n FROM shop.orders o LEFT JOIN shop.items i ON o.id = i.id "
        "LEFT JOIN shop.kinds k ON i.c = k.c GROUP BY k.z, i.c"
    ),
    "left of join": (
        "SELECT o.id, x.z FROM shop.orders o LEFT JOIN "
        "(SELECT i.k, k.z FROM shop.items i JOIN shop.kinds k ON i.c = k.c WHERE k.z > 1) x ON x.k = o.k"
    ),
    # Subqueries
    "exists": (
        "SELECT id, s FROM shop.orders o WHERE EXISTS (SELECT 1 "
        "FROM shop.items i WHERE i.k = o.k AND i.w > 2)"
    ),
    "not exists": (
        "SELECT id, s FROM shop.orders o WHERE NOT EXISTS (SELECT 1 "
        "FROM shop.items i WHERE i.k = o.k AND o.v > 2)"
    ),
    "not exists of join": (
        "SELECT s, count(*) AS n FROM shop.orders o WHERE NOT EXISTS "
        "(SELECT 1 FROM shop.items i JOIN shop.kinds k ON i.c = k.c WHERE i.k = o.k AND k.z > 2) GROUP BY s"
    ),
    "nested not exists": (
        "SELECT id FROM shop.orders o WHERE NOT EXISTS (SELECT 1 FROM shop.items i WHERE i.k = o.k "
        "AND NOT EXISTS (SELECT 1 FROM shop.kinds k WHERE k.c = i.c AND i.w > 1))"
    ),
    "in": (
        "SELECT id, s FROM shop.orders WHERE k IN (SELECT k FROM shop.items GROUP BY k HAVING count(*) > 1)"
    ),
    "in pairs": "SELECT id, s FROM shop.orders WHERE (k, s) IN (SELECT k, c FROM shop.log)",
    "semi join": "SELECT o.id FROM shop.orders o LEFT SEMI JOIN shop.log l ON o.k = l.k AND l.w > o.v",
    "anti join": "SELECT o.id FROM shop.orders o LEFT ANTI JOIN shop.log l ON o.k = l.k AND o.v > 2",
    # Windows
    "first of each key": (
        "SELECT q.k, q.id, q.v FROM "
        "(SELECT k, id, v, row_number() OVER (PARTITION BY k ORDER BY "
        "v, id) AS n FROM shop.orders) q WHERE q.n = 1"
    ),
    "running total": (
        "SELECT id, k, sum(v) OVER w AS r, lag(v) OVER w AS l FROM shop.orders WHERE v IS NOT NULL "
        "WINDOW w AS (PARTITION BY k ORDER BY id)"
    ),
    "window of group": (
        "SELECT k, s, sum(v) AS t, rank() OVER (PARTITION BY k ORDER BY "
        "sum(v), s) AS n FROM shop.orders GROUP BY k, s"
    ),
    "joined window": (
        "SELECT i.c, max(q.r) AS m FROM (SELECT k, id, sum(v) OVER "
        "(PARTITION BY k ORDER BY id) AS r FROM shop.orders) q "
        "JOIN shop.items i ON q.k = i.k GROUP BY i.c"
    ),
    "union": "SELECT k, s FROM shop.orders UNION SELECT k, c FROM shop.log",
}
