"""How a column's JSON value is parsed and turned into its lake type, as Spark types and expressions.

This is the one place where wire encodings meet Spark. Everything here runs on the JVM.
"""

import json
import re
from collections.abc import Callable, Iterable
from typing import Final

from pyspark.sql import Column as SparkColumn
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
    VariantType,
)

from replicator.model.table import Column
from replicator.model.types import TIMESTAMPTZ, LakeType, Wire

_SPARK_TYPES: Final[dict[str, DataType]] = {
    "boolean": BooleanType(),
    "int": IntegerType(),
    "long": LongType(),
    "float": FloatType(),
    "double": DoubleType(),
    "string": StringType(),
    "binary": BinaryType(),
    "date": DateType(),
    "timestamp": TimestampNTZType(),
    "timestamptz": TimestampType(),
    "list<float>": ArrayType(FloatType()),
}
_LONG_DIGITS: Final = 18
_LONG_BYTES: Final = 8
"""So many digits fit so many bytes."""
_WORDS: Final = 4
"""32-bit words of the largest decimal that the lake has a type for, of 38 digits."""
_WIDE_WORDS: Final = 7
"""32-bit words of MySQL's largest decimal, of 65 digits."""
_LIMB: Final = 27
"""Digits of a piece of a wide decimal: such a piece times 2^32, seven times over, is a decimal of 38 digits."""
_LATIN1: Final = r"^[\x00-\xff]*$"
_BASE64: Final = "^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$"
_BARE: Final = "#"
"""What `quoted_numbers` puts before a number."""
_NUMBER_PARTS: Final = r"^([+-]?)(\d+)(?:\.(\d+))?(?:[eE]([+-]?\d+))?$"

_PARSED_AS: Final[dict[Wire, DataType]] = {
    Wire.DAYS: IntegerType(),
    Wire.MILLIS: LongType(),
    Wire.MICROS: LongType(),
    Wire.NANOS: LongType(),
    Wire.BASE64_DECIMAL: BinaryType(),
    Wire.UNSEEN_DECIMAL: StringType(),
    Wire.BASE64_BITS: BinaryType(),
    Wire.TIME_MILLIS: LongType(),
    Wire.TIME_NANOS: LongType(),
    Wire.FLAG: StringType(),
    Wire.LATIN1: StringType(),
    Wire.GEOMETRY: StructType([StructField("wkb", BinaryType()), StructField("srid", IntegerType())]),
}
_MAY_BE_UNREADABLE: Final = frozenset(
    {
        *(Wire.BASE64_DECIMAL, Wire.EITHER_DECIMAL, Wire.UNSEEN_DECIMAL),
        *(Wire.DAYS, Wire.MILLIS, Wire.MICROS, Wire.NANOS),
        *(Wire.FLAG, Wire.LATIN1, Wire.INSTANT_TEXT),
    }
)
_DAY: Final = 86_400_000_000
_YEAR_0: Final = -719_528 * _DAY
_YEAR_9999: Final = 2_932_897 * _DAY - 1
"""The first and the last microsecond that MySQL has, since 1970."""

_YEAR_1: Final = -719_162 * _DAY
"""The first one that Python's calendar has."""


def spark_type(lake_type: LakeType) -> DataType:
    """The Spark type of an Iceberg type."""
    if lake_type.name == "decimal":
        return DecimalType(lake_type.precision, lake_type.scale)
    return _SPARK_TYPES[lake_type.name]


def parsed_type(column: Column) -> DataType:
    """The type as which `from_json` reads the column."""
    if column.wire is Wire.EITHER_DECIMAL and column.type.name == "decimal":
        return VariantType()
    return _PARSED_AS.get(column.wire) or spark_type(column.type)


def row_type(columns: tuple[Column, ...]) -> StructType:
    """The lake's row type of these columns, all nullable."""
    return StructType([StructField(c.name, spark_type(c.type)) for c in columns])


def decoded(value: SparkColumn, column: Column) -> SparkColumn:
    """`value`, read as `parsed_type`, as the column's lake type. The session's time zone must be UTC."""
    return _DECODERS[column.wire](value, column)


def _plain(value: SparkColumn, column: Column) -> SparkColumn:
    if column.type == TIMESTAMPTZ:
        return _instant(value)
    return _wide_value(value, column) if is_wide(column) else _respelt(value, column.respelt)


def _instant(value: SparkColumn) -> SparkColumn:
    """A time in the years 1 to 9999: Spark makes one of any number, too, and Python could not show it."""
    return F.when(F.unix_micros(value).between(_YEAR_1, _YEAR_9999), value)


def _padded_bytes(value: SparkColumn, column: Column) -> SparkColumn:
    # Spark fails at letters that the character set lacks.
    raw = F.encode(F.when(value.rlike(_LATIN1), value), "ISO-8859-1")
    return raw if column.size is None else F.rpad(raw, column.size, F.lit(b"\0"))


def _any_decimal(value: SparkColumn, column: Column) -> SparkColumn:
    return _wide_value(value, column) if is_wide(column) else _decimal_value(value, column)


_DECODERS: Final[dict[Wire, Callable[[SparkColumn, Column], SparkColumn]]] = {
    Wire.PLAIN: _plain,
    Wire.DAYS: lambda value, _: F.date_from_unix_date(_of_this_era(value, _DAY)),
    Wire.MILLIS: lambda value, _: F.timestamp_millis(_of_this_era(value, 1000)).cast(TimestampNTZType()),
    Wire.MICROS: lambda value, _: F.timestamp_micros(_of_this_era(value, 1)).cast(TimestampNTZType()),
    Wire.NANOS: lambda value, _: F.timestamp_micros(_of_this_era(_thousandths(value), 1)).cast(
        TimestampNTZType()
    ),
    Wire.TIME_MILLIS: lambda value, _: value * 1000,
    Wire.TIME_NANOS: lambda value, _: _thousandths(value),
    Wire.BASE64_BITS: lambda value, _: _reversed_bytes(value),
    Wire.BASE64_DECIMAL: _any_decimal,
    Wire.EITHER_DECIMAL: _any_decimal,
    Wire.UNSEEN_DECIMAL: _any_decimal,
    Wire.YEAR: lambda value, _: F.when(value == 1900, F.lit(0)).otherwise(value),
    Wire.FLAG: lambda value, _: _flag(value.cast("string")),
    Wire.SET: lambda value, column: _respelt_set(value, column.respelt),
    Wire.GEOMETRY: lambda value, _: _ewkb(value.getField("wkb"), value.getField("srid")),
    Wire.LATIN1: _padded_bytes,
    Wire.INSTANT_TEXT: lambda value, _: _instant(value.cast(TimestampType())),
    Wire.NESTED: lambda value, _: F.to_json(value, {"ignoreNullFields": "false"}),
}


def is_wide(column: Column) -> bool:
    """Whether the column is a DECIMAL with too many digits for the lake, which keeps it as text."""
    return column.size is not None and column.type.name == "string"


def may_be_unreadable(column: Column) -> bool:
    """Whether `decoded` makes null of a value that is there but is none of the column's."""
    plain_instant = column.wire is Wire.PLAIN and column.type == TIMESTAMPTZ
    return column.wire in _MAY_BE_UNREADABLE or plain_instant or is_wide(column)


def is_given(value: SparkColumn, column: Column) -> SparkColumn:
    """Whether there is a value at all, read as `parsed_type`."""
    given = value.isNotNull()
    return given & ~F.is_variant_null(value) if isinstance(parsed_type(column), VariantType) else given


def _respelt(value: SparkColumn, labels: tuple[tuple[str, str], ...]) -> SparkColumn:
    if not labels:
        return value
    (first, label), *others = labels
    known = F.when(value == first, F.lit(label))
    for written, meant in others:
        known = known.when(value == written, F.lit(meant))
    return known.otherwise(value)


def _respelt_set(value: SparkColumn, labels: tuple[tuple[str, str], ...]) -> SparkColumn:
    if not labels:
        return value
    respelt = F.transform(F.split(value, ","), lambda label: _respelt(label, labels))
    return F.array_join(respelt, ",")


def _flag(value: SparkColumn) -> SparkColumn:
    truth = F.when(value == "true", F.lit(1)).when(value == "false", F.lit(0))
    return truth.otherwise(value.try_cast(IntegerType()))


def _ewkb(wkb: SparkColumn, srid: SparkColumn) -> SparkColumn:
    """WKB as MySQL writes it, little-endian, with the SRID behind the type where there is one other than 0."""
    number = _reversed_bytes(F.unhex(F.lpad(F.hex(srid), 8, "0")))
    # The flag of EWKB is bit 29 of the type, whose highest byte is 0 otherwise.
    marked = F.concat(F.substring(wkb, 1, 4), F.lit(b"\x20"), number, F.substring(wkb, 6, (1 << 31) - 1))
    return F.when(F.coalesce(srid, F.lit(0)) == 0, wkb).otherwise(marked)


def _of_this_era(value: SparkColumn, unit: int) -> SparkColumn:
    """A time since 1970 in units of so many microseconds, where it is one that MySQL can hold; null for others.

    Spark would fail at some of them, and with it the whole batch.
    """
    return F.when(value.between(_YEAR_0 // unit, _YEAR_9999 // unit), value)


def _thousandths(value: SparkColumn) -> SparkColumn:
    """A thousandth, rounded down, in whole numbers."""
    return F.floor((value - F.pmod(value, F.lit(1000))) / 1000).cast(LongType())


def _reversed_bytes(value: SparkColumn) -> SparkColumn:
    """Bytes back to front: BIT arrives little-endian, MySQL prints it big-endian. At most 8 bytes."""
    pieces = [F.substring(value, i, 1) for i in range(8, 0, -1)]
    return F.concat(*pieces)


def _decimal_value(value: SparkColumn, column: Column) -> SparkColumn:
    lake_type = column.type
    if column.wire is Wire.UNSEEN_DECIMAL:
        return F.lit(None).cast(spark_type(lake_type))
    if column.wire is Wire.BASE64_DECIMAL:
        return _decimal(value, lake_type)
    number = F.try_variant_get(value, "$", str(lake_type))
    unscaled = F.try_to_binary(F.try_variant_get(value, "$", "string"), F.lit("base64"))
    return F.when(F.schema_of_variant(value) == "STRING", _decimal(unscaled, lake_type)).otherwise(number)


def _decimal(value: SparkColumn, lake_type: LakeType) -> SparkColumn:
    """Big-endian two's complement bytes as a decimal, as many as its digits take; null for more.

    The bytes are cut into 32-bit words, because Spark has no wider integer to read hexadecimal digits into. Of a
    negative number -n these are the words of n - 1 with every bit turned, which keeps all steps within 38 digits.
    """
    if lake_type.precision <= _LONG_DIGITS:
        return _short_decimal(value, lake_type)
    negative, words = _words(value, _WORDS)
    size = words[0].cast("decimal(38,0)")
    for word in words[1:]:
        size = (size * F.lit(1 << 32).cast("decimal(11,0)") + word).cast("decimal(38,0)")
    # Spark may compute a branch that it does not take, so neither may overflow; and its unary minus rounds to
    # 34 digits, while its subtraction is exact.
    below = F.lit(-1).cast("decimal(1,0)") - F.when(negative, size).otherwise(F.lit(0).cast("decimal(38,0)"))
    unscaled = F.when(negative, below).otherwise(size)
    return F.when(F.length(value) <= _WORDS * 4, _shifted(unscaled.cast("string"), lake_type))


def _short_decimal(value: SparkColumn, lake_type: LakeType) -> SparkColumn:
    """As `_decimal`, of at most eight bytes: a fraction of the work, and what most columns have."""
    digits = F.hex(value)
    sign = F.when(F.substring(digits, 1, 1) >= "8", "F").otherwise("0")
    # To base -10 means that 64 bits are a number with a sign.
    unscaled = F.conv(F.lpad(digits, 16, sign), 16, -10)
    return F.when(F.length(value) <= _LONG_BYTES, _shifted(unscaled, lake_type))


def _shifted(unscaled: SparkColumn, lake_type: LakeType) -> SparkColumn:
    # Shifting the point in text is exact; decimal division would round.
    return F.concat(unscaled, F.lit(f"E-{lake_type.scale}")).cast(spark_type(lake_type))


def _words(value: SparkColumn, count: int) -> tuple[SparkColumn, list[SparkColumn]]:
    """Whether a two's complement number is below zero, and the 32-bit words, as decimals, of n or, below, of -n - 1."""
    negative = F.substring(F.hex(value), 1, 1) >= "8"
    digits = F.lpad(F.hex(value), count * 8, F.when(negative, "F").otherwise("0"))
    words = [F.conv(F.substring(digits, 1 + 8 * i, 8), 16, 10).cast("decimal(11,0)") for i in range(count)]
    top = F.lit((1 << 32) - 1).cast("decimal(11,0)")
    return negative, [F.when(negative, (top - w).cast("decimal(11,0)")).otherwise(w) for w in words]


def quoted_numbers(text: SparkColumn, columns: Iterable[Column]) -> SparkColumn:
    """An event's JSON with the numbers of wide decimals in quotes, a mark before each.

    Spark reads a number into text by way of a double, which keeps 17 of its digits. Only a key of an object can look
    like the pattern: inside of strings, quotes have a backslash before them.
    """
    for column in columns:
        # The source block has numbers of its own by these names, which may not become text.
        if is_wide(column) and column.written not in _SOURCE_NUMBERS:
            key = json.dumps(column.written, ensure_ascii=False) + ":"
            text = F.regexp_replace(text, rf"(?<!\\)({re.escape(key)})(-?\d[-+.\deE]*)", f'$1"{_BARE}$2"')
    return text


_SOURCE_NUMBERS: Final = frozenset({"pos", "row", "server_id", "ts_ms", "ts_us", "ts_ns", "thread"})


def _wide_value(value: SparkColumn, column: Column) -> SparkColumn:
    """A decimal as the text that MySQL shows; null for a value that is none."""
    scale = column.size or 0
    if column.wire is Wire.BASE64_DECIMAL:
        return _wide_text(value, scale)
    bare = value.startswith(_BARE)
    number = _number_text(F.when(bare, F.substring(value, 2, 1 << 10)), scale)
    if column.wire is Wire.UNSEEN_DECIMAL:
        return F.lit(None).cast(StringType())
    if column.wire is Wire.PLAIN:
        return F.when(bare, number).otherwise(_number_text(value, scale))
    # Spark makes something of text that is no base64, too.
    packed = F.try_to_binary(F.when(value.rlike(_BASE64), value), F.lit("base64"))
    return F.when(bare, number).otherwise(_wide_text(packed, scale))


def _number_text(value: SparkColumn, scale: int) -> SparkColumn:
    """The text of a number, perhaps with an exponent, as one with `scale` digits behind the point; null for others."""

    def shown(parts: SparkColumn) -> SparkColumn:
        sign, whole, part, exponent = (F.element_at(parts, i) for i in range(1, 5))
        lacking = F.lit(scale) - F.length(part) + F.coalesce(exponent.try_cast(IntegerType()), F.lit(0))
        digits = F.concat(whole, part)
        padded = F.rpad(digits, F.length(digits) + lacking, F.lit("0"))
        below = (sign == "-") & digits.rlike("[1-9]")
        return F.when(lacking.between(0, 1 << 8), _with_point(padded, scale, below))

    parts = F.array(*(F.regexp_extract(value, _NUMBER_PARTS, i) for i in range(1, 5)))
    return _let(F.when(value.rlike(_NUMBER_PARTS), parts), shown)


def _wide_text(value: SparkColumn, scale: int) -> SparkColumn:
    """Big-endian two's complement bytes, up to 28 of them, as a decimal's text; null for more.

    The 32-bit words are multiplied by their powers of two piece by piece: no step leaves 38 digits.
    """

    def shown(words: SparkColumn) -> SparkColumn:
        # The last one is 1 where the number is below zero, and the others are those of -n - 1.
        below = F.element_at(words, _WIDE_WORDS + 1)
        return _let(
            _piece(words, below, 0),
            lambda low: _let(
                _piece(words, _carry(low), 1),
                lambda middle: _with_point(
                    F.concat(*(_own(p) for p in (_piece(words, _carry(middle), 2), middle, low))),
                    scale,
                    below == 1,
                ),
            ),
        )

    negative, words = _words(value, _WIDE_WORDS)
    sign = F.when(negative, F.lit(1)).otherwise(F.lit(0)).cast("decimal(11,0)")
    readable = F.length(value).between(1, _WIDE_WORDS * 4)
    return _let(F.when(readable, F.array(*words, sign)), shown)


def _piece(words: SparkColumn, carry: SparkColumn, number: int) -> SparkColumn:
    """A piece of the product, counted from the least: 38 digits as text, of which `_carry` belong to the next one."""
    total = carry.cast("decimal(38,0)")
    for i in range(_WIDE_WORDS):
        factor = ((1 << 32 * (_WIDE_WORDS - 1 - i)) // 10 ** (_LIMB * number)) % 10**_LIMB
        if factor:
            product = F.lit(str(factor)).cast(f"decimal({_LIMB},0)") * F.element_at(words, i + 1)
            total = (total + product.cast("decimal(38,0)")).cast("decimal(38,0)")
    return F.lpad(total.cast("string"), 38, "0")


def _own(piece: SparkColumn) -> SparkColumn:
    return F.substring(piece, 39 - _LIMB, _LIMB)


def _carry(piece: SparkColumn) -> SparkColumn:
    return F.substring(piece, 1, 38 - _LIMB).cast("decimal(11,0)")


def _with_point(digits: SparkColumn, scale: int, below: SparkColumn) -> SparkColumn:
    """Digits with a point before the last `scale` ones and no zeros in front, one before the point excepted."""

    def shown(padded: SparkColumn) -> SparkColumn:
        whole = F.regexp_replace(F.substring(padded, F.lit(1), F.length(padded) - scale), r"^0+(?=\d)", "")
        part = [F.lit("."), F.right(padded, F.lit(scale))] if scale else []
        return F.concat(F.when(below, F.lit("-")).otherwise(F.lit("")), whole, *part)

    return _let(F.concat(F.lit("0" * (scale + 1)), digits), shown)


def _let(value: SparkColumn, body: Callable[[SparkColumn], SparkColumn]) -> SparkColumn:
    """`body` of `value`, which is computed once however often `body` uses it."""
    return F.element_at(F.transform(F.array(value), body), 1)
