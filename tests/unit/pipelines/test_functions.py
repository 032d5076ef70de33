"""Every aggregate of Spark is known as one: an unknown one would be taken for a function of a row."""

import pytest
import sqlglot
from sqlglot import exp
from sqlglot.errors import ParseError

from replicator.pipelines.query.functions import ORDER_DEPENDENT, UNMAINTAINED, names_of, use_known_names

AGGREGATES = [
    "any",
    "any_value",
    "approx_count_distinct",
    "approx_percentile",
    "approx_top_k",
    "array_agg",
    "avg",
    "bit_and",
    "bit_or",
    "bit_xor",
    "bitmap_construct_agg",
    "bitmap_or_agg",
    "bool_and",
    "bool_or",
    "collect_list",
    "collect_set",
    "corr",
    "count",
    "count_if",
    "count_min_sketch",
    "covar_pop",
    "covar_samp",
    "every",
    "first",
    "first_value",
    "grouping",
    "grouping_id",
    "histogram_numeric",
    "hll_sketch_agg",
    "hll_union_agg",
    "kurtosis",
    "last",
    "last_value",
    "listagg",
    "max",
    "max_by",
    "mean",
    "median",
    "min",
    "min_by",
    "mode",
    "percentile",
    "percentile_approx",
    "percentile_cont",
    "percentile_disc",
    "regr_avgx",
    "regr_avgy",
    "regr_count",
    "regr_intercept",
    "regr_r2",
    "regr_slope",
    "regr_sxx",
    "regr_sxy",
    "regr_syy",
    "schema_of_variant_agg",
    "skewness",
    "some",
    "std",
    "stddev",
    "stddev_pop",
    "stddev_samp",
    "string_agg",
    "sum",
    "try_avg",
    "try_sum",
    "var_pop",
    "var_samp",
    "variance",
]


@pytest.mark.parametrize("name", AGGREGATES)
def test_aggregates_of_spark_are_known(name: str) -> None:
    query = _call(name)
    use_known_names(query)
    (call,) = query.selects
    known = isinstance(call, exp.AggFunc) or names_of(call) & (ORDER_DEPENDENT | UNMAINTAINED)
    assert known, repr(call)


def _call(name: str) -> exp.Query:
    for arguments in ("x", "x, y"):
        try:
            query = sqlglot.parse_one(f"SELECT {name}({arguments}) FROM t", dialect="spark")
        except ParseError:
            continue
        assert isinstance(query, exp.Query)
        return query
    raise AssertionError(name)
