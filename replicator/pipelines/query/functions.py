"""Functions whose result is not a function of the rows: they differ between two computations of the same rows."""

from typing import Final

from sqlglot import exp

from replicator.pipelines.query.definition import Definition

_CLOCK: Final = frozenset(
    {
        "now",
        "current_timestamp",
        "current_date",
        "current_time",
        "localtimestamp",
        "curdate",
        "getdate",
        "sysdate",
    }
)
_CHANCE: Final = frozenset({"rand", "random", "randn", "randstr", "uniform", "uuid", "shuffle"})
_SESSION: Final = frozenset(
    {
        "current_user",
        "user",
        "session_user",
        "current_database",
        "current_schema",
        "current_catalog",
        "current_timezone",
        "version",
    }
)
_PLACE: Final = frozenset(
    {
        "monotonically_increasing_id",
        "spark_partition_id",
        "input_file_name",
        "input_file_block_start",
        "input_file_block_length",
        "reflect",
        "java_method",
        "try_reflect",
    }
)
_REASONS: Final = (
    (
        _CLOCK,
        "tells the time of the refresh",
        "take a time from the rows, such as _change.source_ts of a changelog",
    ),
    (_CHANCE, "gives other values at each refresh", "derive the value from columns, as hash(id) does"),
    (_SESSION, "depends on who refreshes", "write the value itself"),
    (_PLACE, "depends on how Spark reads the rows", "use a column of the rows instead"),
)

ORDER_DEPENDENT: Final = frozenset(
    {
        "first",
        "first_value",
        "last",
        "last_value",
        "any_value",
        "collect_list",
        "collect_set",
        "array_agg",
        "listagg",
        "string_agg",
        "group_concat",
        "array_unique_agg",
        "mode",
    }
)
"""Aggregates whose result depends on the order in which rows are read."""

UNMAINTAINED: Final = frozenset(
    {
        "approx_top_k",
        "bitmap_and_agg",
        "bitmap_construct_agg",
        "bitmap_or_agg",
        "count_min_sketch",
        "histogram_numeric",
        "hll_sketch_agg",
        "hll_union_agg",
        "percentile",
        "percentile_cont",
        "percentile_disc",
        "kurtosis",
        "skewness",
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
        "try_avg",
        "try_sum",
        # Functions with several rows as result.
        "explode",
        "explode_outer",
        "posexplode",
        "posexplode_outer",
        "inline",
        "inline_outer",
        "stack",
        "json_tuple",
    }
)
"""Aggregates of Spark that the parser may not know as such, and functions whose result is not one value."""

_SYNONYMS: Final[dict[str, type[exp.Func]]] = {
    "every": exp.LogicalAnd,
    "some": exp.LogicalOr,
    "mean": exp.Avg,
    "std": exp.Stddev,
}
"""Aggregates that the parser knows only by another name."""


def names_of(node: exp.Expr) -> frozenset[str]:
    """Return the names that a function has, in lower case; none if it is not a function."""
    if isinstance(node, exp.Anonymous):
        return frozenset({node.name.lower()})
    if isinstance(node, exp.Func):
        return frozenset(name.lower() for name in (*node.sql_names(), node.key))
    return frozenset()


def use_known_names(query: exp.Query) -> None:
    """Replace aggregates that the parser knows only by another name."""
    for node in list(query.find_all(exp.Anonymous, exp.Any)):
        found: exp.Func | None = None
        if isinstance(node, exp.Any) and not isinstance(node.parent, exp.Binary):
            found = exp.LogicalOr(this=node.this.unnest())
        if isinstance(node, exp.Anonymous) and len(node.expressions) == 1 and node.name.lower() in _SYNONYMS:
            found = _SYNONYMS[node.name.lower()](this=node.expressions[0])
        if found is not None:
            found.meta.update(node.meta)
            node.replace(found)


def refuse_functions(definition: Definition) -> None:
    """Refuse functions that are not functions of the rows.

    Raises:
        PipelineError: the query calls one.
    """
    for node in definition.query.walk():
        if (refused := non_deterministic(node)) is not None:
            shown = node.sql("spark", comments=False).partition("(")[0].lower()
            raise definition.error(node, f"{shown}() {refused[0]}", refused[1])
    for sample in definition.query.find_all(exp.TableSample):
        raise definition.error(
            sample, "TABLESAMPLE reads other rows at each refresh", "filter by a column instead"
        )


def non_deterministic(node: exp.Expr) -> tuple[str, str] | None:
    """Return why a function is no function of the rows, and what to do; None if it is one."""
    names = names_of(node)
    if isinstance(node, (exp.UnixSeconds, exp.TimeToUnix, exp.StrToUnix)) and node.args.get("this") is None:
        names |= {"now"}
    if isinstance(node, exp.Anonymous) and node.name.lower() == "unix_timestamp" and not node.expressions:
        names |= {"now"}
    for refused, reason, hint in _REASONS:
        if names & refused:
            return reason, hint
    return None
