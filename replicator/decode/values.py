"""Parse, convert and mask column values, as Spark types and expressions.

Debezium decodes text of the binlog with the character set of Java that MySQL's driver names for it. For seven sets,
Java has none, and the driver names a similar one: Cp852 for keybcs2, KOI8_R for koi8u, and Cp1252 for the others, also
for latin1. Of others, some characters differ, such as one of gbk, or bytes are unknown to MySQL, which shows them as
question marks. Snapshots read text that MySQL itself converts, which is right.

`misread_texts.json` has the characters that are decoded wrongly, and in the same order those that are meant: to which
MySQL 9.7 converts the bytes (``CONVERT(_hp8 X'A1' USING utf8mb4)``). Of sets that are `lossy`, further characters all
become `UNKNOWN_CHARACTER`, or several of it: rows with such text are read again from the source.

Only this module implements encodings in Spark. Everything runs on the JVM.
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from pathlib import Path
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
from replicator.model.transforms import MASKED, Blank, ColumnTransform, FixedText, KeepLast, KeyedHash
from replicator.model.types import MISREAD_TEXTS, TIMESTAMPTZ, Encoding, LakeType

_NAMES: Final[Mapping[str, str]] = {Encoding.CP1252: "latin1"}
"""Encoding → the character set of MySQL, if it has another name."""


def corrected(value: SparkColumn, encoding: Encoding) -> SparkColumn:
    """Return the text that the source has for a text of the binlog; `encoding` is one of `MISREAD_TEXTS`."""
    characters = _characters()[_NAMES.get(encoding, encoding)]
    decoded = characters["decoded"]
    return F.translate(value, decoded, characters["meant"]) if decoded else value


@cache
def _characters() -> Mapping[str, Mapping[str, str]]:
    return dict(json.loads(Path(__file__).with_name("misread_texts.json").read_text(encoding="utf-8")))


def transformed(value: SparkColumn, lake_type: LakeType, transform: ColumnTransform | None) -> SparkColumn:
    """Apply a column transform to `value`, which is decoded as `lake_type`; null stays null."""
    match transform:
        case None:
            return value
        case KeyedHash():
            return _hmac(_canonical_bytes(value, lake_type), transform)
        case FixedText(text):
            return F.when(value.isNotNull(), F.lit(text))
        case KeepLast(count):
            return _end_kept(_canonical_text(value, lake_type), count)
        case Blank():
            return F.lit(None)


def _hmac(message: SparkColumn, transform: KeyedHash) -> SparkColumn:
    inner, outer = (F.lit(pad) for pad in transform.pads)
    return F.sha2(F.concat(outer, F.unhex(F.sha2(F.concat(inner, message), 256))), 256)


def _canonical_bytes(value: SparkColumn, lake_type: LakeType) -> SparkColumn:
    return value if lake_type.name == "binary" else _canonical_text(value, lake_type).cast("binary")


def _canonical_text(value: SparkColumn, lake_type: LakeType) -> SparkColumn:
    if lake_type.name == "binary":
        return F.hex(value)
    if lake_type.name == "decimal":
        # A cast would write small decimals with an exponent.
        places = "0." + "0" * lake_type.scale if lake_type.scale else "0"
        return F.call_function("format_number", value, F.lit(places))
    return value.cast("string")


def _end_kept(text: SparkColumn, count: int) -> SparkColumn:
    hidden = F.when(F.length(text) > count, F.length(text) - count).otherwise(F.length(text))
    return F.concat(F.repeat(F.lit(MASKED), hidden), F.substr(text, hidden + 1))


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
"""Decimals of at most `_LONG_DIGITS` digits fit into this number of bytes."""
_WORDS: Final = 4
"""Number of 32-bit words of the largest decimal in the lake, which has 38 digits."""
_WIDE_WORDS: Final = 7
"""Number of 32-bit words of MySQL's largest decimal, which has 65 digits."""
_LIMB: Final = 27
"""Digits of a limb of a wide decimal: the sum of seven products of a limb and 2^32 fits into 38 digits."""
_LATIN1: Final = r"^[\x00-\xff]*$"
_BASE64: Final = "^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$"
_PLAIN_SCALE: Final = 6
"""Maximum number of fraction digits with which numbers are written without an exponent."""
_BARE: Final = "#"
"""Prefix that `quoted_numbers` puts before a number."""
_NUMBER_PARTS: Final = r"^([+-]?)(\d+)(?:\.(\d+))?(?:[eE]([+-]?\d+))?$"

_PARSED_AS: Final[dict[Encoding, DataType]] = {
    Encoding.DAYS: IntegerType(),
    Encoding.MILLIS: LongType(),
    Encoding.MICROS: LongType(),
    Encoding.NANOS: LongType(),
    Encoding.BASE64_DECIMAL: BinaryType(),
    Encoding.NUMBER: DoubleType(),
    Encoding.UNSEEN_DECIMAL: StringType(),
    Encoding.BASE64_BITS: BinaryType(),
    Encoding.TIME_MILLIS: LongType(),
    Encoding.TIME_NANOS: LongType(),
    Encoding.FLAG: StringType(),
    Encoding.LATIN1: StringType(),
    Encoding.GEOMETRY: StructType([StructField("wkb", BinaryType()), StructField("srid", IntegerType())]),
}
_MAY_BE_UNREADABLE: Final = frozenset(
    {
        *(Encoding.BASE64_DECIMAL, Encoding.EITHER_DECIMAL, Encoding.UNSEEN_DECIMAL, Encoding.NUMBER),
        *(Encoding.DAYS, Encoding.MILLIS, Encoding.MICROS, Encoding.NANOS),
        *(Encoding.FLAG, Encoding.LATIN1, Encoding.INSTANT_TEXT),
    }
)
_DAY: Final = 86_400_000_000
_YEAR_0: Final = -719_528 * _DAY
_YEAR_9999: Final = 2_932_897 * _DAY - 1
"""The first and the last microsecond that MySQL can store, since 1970."""

_YEAR_1: Final = -719_162 * _DAY
"""The first microsecond of Python's calendar, since 1970."""


def spark_type(lake_type: LakeType) -> DataType:
    """Return the Spark type of a lake type."""
    if lake_type.name == "decimal":
        return DecimalType(lake_type.precision, lake_type.scale)
    return _SPARK_TYPES[lake_type.name]


def parsed_type(column: Column) -> DataType:
    """Return the type as which `from_json` reads the column.

    No column is read as a decimal: Spark computes all digits of a number before it counts them, which takes a minute
    for 1e30000000. A double is the fastest, but has only 15 digits, and text is invalid for it. A variant takes a sixth
    longer than a decimal, and keeps only 17 digits of a number that is written with an exponent.
    """
    if column.type.name == "decimal" and column.encoding in (Encoding.PLAIN, Encoding.EITHER_DECIMAL):
        return StringType() if _has_exponents(column) else VariantType()
    return _PARSED_AS.get(column.encoding) or spark_type(column.type)


def _has_exponents(column: Column) -> bool:
    """Return whether the column's numbers may be written with an exponent, as Java does below a millionth."""
    plain = column.encoding is Encoding.PLAIN and column.written not in _SOURCE_NUMBERS
    return plain and column.type.name == "decimal" and column.type.scale > _PLAIN_SCALE


def row_type(columns: tuple[Column, ...]) -> StructType:
    """Return the lake's row type of these columns, all nullable."""
    return StructType([StructField(c.name, spark_type(c.type)) for c in columns])


def decoded(value: SparkColumn, column: Column) -> SparkColumn:
    """Convert `value`, read as `parsed_type`, to the column's lake type. The session's time zone must be UTC."""
    return _DECODERS[column.encoding](value, column)


def _plain(value: SparkColumn, column: Column) -> SparkColumn:
    if column.type == TIMESTAMPTZ:
        return _instant(value)
    if column.type.name == "decimal":
        return _number(value, column)
    return _wide_value(value, column) if is_wide(column) else _respelt(value, column.respelt)


def _number(value: SparkColumn, column: Column) -> SparkColumn:
    """Convert a number, or the text of one, to a decimal; null for other values."""
    if _has_exponents(column):
        text = F.when(value.startswith(_BARE), F.substring(value, 2, 1 << 10)).otherwise(value)
        return text.try_cast(spark_type(column.type))
    # A variant with the value true would become 1.
    is_flag = F.schema_of_variant(value) == "BOOLEAN"
    return F.when(~is_flag, F.try_variant_get(value, "$", str(column.type)))


def _instant(value: SparkColumn) -> SparkColumn:
    """Return an instant in the years 1 to 9999, else null: Spark accepts any number, which Python could not display."""
    return F.when(F.unix_micros(value).between(_YEAR_1, _YEAR_9999), value)


def _padded_bytes(value: SparkColumn, column: Column) -> SparkColumn:
    # Spark fails at characters that are not in the character set.
    raw = F.encode(F.when(value.rlike(_LATIN1), value), "ISO-8859-1")
    return raw if column.size is None else F.rpad(raw, column.size, F.lit(b"\0"))


def _any_decimal(value: SparkColumn, column: Column) -> SparkColumn:
    return _wide_value(value, column) if is_wide(column) else _decimal_value(value, column)


_DECODERS: Final[dict[Encoding, Callable[[SparkColumn, Column], SparkColumn]]] = {
    Encoding.PLAIN: _plain,
    Encoding.DAYS: lambda value, _: F.date_from_unix_date(_of_this_era(value, _DAY)),
    Encoding.MILLIS: lambda value, _: F.timestamp_millis(_of_this_era(value, 1000)).cast(TimestampNTZType()),
    Encoding.MICROS: lambda value, _: F.timestamp_micros(_of_this_era(value, 1)).cast(TimestampNTZType()),
    Encoding.NANOS: lambda value, _: F.timestamp_micros(_of_this_era(_thousandths(value), 1)).cast(
        TimestampNTZType()
    ),
    Encoding.TIME_MILLIS: lambda value, _: value * 1000,
    Encoding.TIME_NANOS: lambda value, _: _thousandths(value),
    Encoding.BASE64_BITS: lambda value, _: _reversed_bytes(value),
    Encoding.BASE64_DECIMAL: _any_decimal,
    Encoding.EITHER_DECIMAL: _any_decimal,
    # The text of a double has all digits of the number that was written; the cast goes by that text.
    Encoding.NUMBER: lambda value, column: value.try_cast(spark_type(column.type)),
    Encoding.UNSEEN_DECIMAL: _any_decimal,
    Encoding.YEAR: lambda value, _: F.when(value == 1900, F.lit(0)).otherwise(value),
    Encoding.FLAG: lambda value, _: _flag(value.cast("string")),
    Encoding.SET: lambda value, column: _respelt_set(value, column.respelt),
    Encoding.GEOMETRY: lambda value, _: _ewkb(value.getField("wkb"), value.getField("srid")),
    Encoding.LATIN1: _padded_bytes,
    Encoding.INSTANT_TEXT: lambda value, _: _instant(value.cast(TimestampType())),
    Encoding.NESTED: lambda value, _: F.to_json(value, {"ignoreNullFields": "false"}),
    **dict.fromkeys(MISREAD_TEXTS, lambda value, column: corrected(value, column.encoding)),
}


def is_wide(column: Column) -> bool:
    """Return whether the column is a DECIMAL with too many digits for the lake, which stores it as text."""
    return column.size is not None and column.type.name == "string"


def may_be_unreadable(column: Column) -> bool:
    """Return whether `decoded` returns null for a present value that is invalid for the column."""
    by_type = column.encoding is Encoding.PLAIN and (
        column.type == TIMESTAMPTZ or column.type.name == "decimal"
    )
    return column.encoding in _MAY_BE_UNREADABLE or by_type or is_wide(column)


def is_given(value: SparkColumn, column: Column) -> SparkColumn:
    """Return whether a value, read as `parsed_type`, is present."""
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
    """Return MySQL's little-endian WKB with the SRID after the type if it is not 0."""
    number = _reversed_bytes(F.unhex(F.lpad(F.hex(srid), 8, "0")))
    # The flag of EWKB is bit 29 of the type, whose highest byte is 0 otherwise.
    marked = F.concat(F.substring(wkb, 1, 4), F.lit(b"\x20"), number, F.substring(wkb, 6, (1 << 31) - 1))
    return F.when(F.coalesce(srid, F.lit(0)) == 0, wkb).otherwise(marked)


def _of_this_era(value: SparkColumn, unit: int) -> SparkColumn:
    """Return a time since 1970, in units of `unit` microseconds, if MySQL can store it, else null.

    Spark would fail at some other values, and with it the whole batch.
    """
    return F.when(value.between(_YEAR_0 // unit, _YEAR_9999 // unit), value)


def _thousandths(value: SparkColumn) -> SparkColumn:
    """Divide by 1000 in integers, rounded down."""
    return F.floor((value - F.pmod(value, F.lit(1000))) / 1000).cast(LongType())


def _reversed_bytes(value: SparkColumn) -> SparkColumn:
    """Reverse at most 8 bytes: BIT arrives little-endian, and MySQL prints it big-endian."""
    pieces = [F.substring(value, i, 1) for i in range(8, 0, -1)]
    return F.concat(*pieces)


def _decimal_value(value: SparkColumn, column: Column) -> SparkColumn:
    lake_type = column.type
    if column.encoding is Encoding.UNSEEN_DECIMAL:
        return F.lit(None).cast(spark_type(lake_type))
    if column.encoding is Encoding.BASE64_DECIMAL:
        return _decimal(value, lake_type)
    number = _number(value, column)
    unscaled = F.try_to_binary(F.try_variant_get(value, "$", "string"), F.lit("base64"))
    return F.when(F.schema_of_variant(value) == "STRING", _decimal(unscaled, lake_type)).otherwise(number)


def _decimal(value: SparkColumn, lake_type: LakeType) -> SparkColumn:
    """Convert big-endian two's complement bytes to a decimal; null if there are more than its digits need.

    The bytes are split into 32-bit words, because Spark has no wider integer to parse hexadecimal digits into. For a
    negative number -n they are the inverted words of n - 1, which keeps all steps within 38 digits.
    """
    if lake_type.precision <= _LONG_DIGITS:
        return _short_decimal(value, lake_type)
    negative, words = _words(value, _WORDS)
    size = words[0].cast("decimal(38,0)")
    for word in words[1:]:
        size = (size * F.lit(1 << 32).cast("decimal(11,0)") + word).cast("decimal(38,0)")
    # Spark may evaluate both branches, so neither may overflow. Its unary minus rounds to 34 digits, while its
    # subtraction is exact.
    below = F.lit(-1).cast("decimal(1,0)") - F.when(negative, size).otherwise(F.lit(0).cast("decimal(38,0)"))
    unscaled = F.when(negative, below).otherwise(size)
    return F.when(F.length(value) <= _WORDS * 4, _shifted(unscaled.cast("string"), lake_type))


def _short_decimal(value: SparkColumn, lake_type: LakeType) -> SparkColumn:
    """Convert at most eight bytes, as `_decimal` does: a fraction of the work, and sufficient for most columns."""
    digits = F.hex(value)
    sign = F.when(F.substring(digits, 1, 1) >= "8", "F").otherwise("0")
    # The target base -10 makes Spark interpret the 64 bits as a signed number.
    unscaled = F.conv(F.lpad(digits, 16, sign), 16, -10)
    return F.when(F.length(value) <= _LONG_BYTES, _shifted(unscaled, lake_type))


def _shifted(unscaled: SparkColumn, lake_type: LakeType) -> SparkColumn:
    # Shifting the point in text is exact; decimal division would round.
    return F.concat(unscaled, F.lit(f"E-{lake_type.scale}")).cast(spark_type(lake_type))


def _words(value: SparkColumn, count: int) -> tuple[SparkColumn, list[SparkColumn]]:
    """Return whether a two's complement number n is negative, and the 32-bit words, as decimals, of n or of -n - 1."""
    negative = F.substring(F.hex(value), 1, 1) >= "8"
    digits = F.lpad(F.hex(value), count * 8, F.when(negative, "F").otherwise("0"))
    words = [F.conv(F.substring(digits, 1 + 8 * i, 8), 16, 10).cast("decimal(11,0)") for i in range(count)]
    top = F.lit((1 << 32) - 1).cast("decimal(11,0)")
    return negative, [F.when(negative, (top - w).cast("decimal(11,0)")).otherwise(w) for w in words]


def quoted_numbers(text: SparkColumn, columns: Iterable[Column]) -> SparkColumn:
    """Quote the numbers of wide decimals and of decimals with exponents in an event's JSON, with the prefix `_BARE`.

    Spark reads a number into text through a double, which keeps only 17 digits. Only the key of an object can match the
    pattern, because quotes inside strings have a backslash before them.
    """
    for column in columns:
        # The source block has numeric fields with these names, which must not become text.
        if _has_exponents(column) or (is_wide(column) and column.written not in _SOURCE_NUMBERS):
            key = re.escape(json.dumps(column.written, ensure_ascii=False)) + r"\s*:\s*"
            text = F.regexp_replace(text, rf"(?<!\\)({key})(-?\d[-+.\deE]*)", f'$1"{_BARE}$2"')
    return text


_SOURCE_NUMBERS: Final = frozenset({"pos", "row", "server_id", "ts_ms", "ts_us", "ts_ns", "thread"})


def _wide_value(value: SparkColumn, column: Column) -> SparkColumn:
    """Convert a decimal to the text that MySQL shows; null if the value is invalid."""
    scale = column.size or 0
    if column.encoding is Encoding.BASE64_DECIMAL:
        return _wide_text(value, scale)
    bare = value.startswith(_BARE)
    number = _number_text(F.when(bare, F.substring(value, 2, 1 << 10)), scale)
    if column.encoding is Encoding.UNSEEN_DECIMAL:
        return F.lit(None).cast(StringType())
    if column.encoding is Encoding.PLAIN:
        return F.when(bare, number).otherwise(_number_text(value, scale))
    # Spark also decodes text that is not base64, to arbitrary bytes.
    packed = F.try_to_binary(F.when(value.rlike(_BASE64), value), F.lit("base64"))
    return F.when(bare, number).otherwise(_wide_text(packed, scale))


def _number_text(value: SparkColumn, scale: int) -> SparkColumn:
    """Convert the text of a number, possibly with an exponent, to one with `scale` fraction digits; null for others."""

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
    """Convert at most 28 big-endian two's complement bytes to a decimal's text; null if there are more.

    The 32-bit words are multiplied by their powers of two limb by limb, so that no step exceeds 38 digits.
    """

    def shown(words: SparkColumn) -> SparkColumn:
        # The last element is 1 if the number n is negative; the others are then the words of -n - 1.
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
    """Return a limb of the product, counted from the least significant: 38 digits of text, including the carry."""
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
    """Insert a point before the last `scale` digits and strip leading zeros, except one before the point."""

    def shown(padded: SparkColumn) -> SparkColumn:
        whole = F.regexp_replace(F.substring(padded, F.lit(1), F.length(padded) - scale), r"^0+(?=\d)", "")
        part = [F.lit("."), F.right(padded, F.lit(scale))] if scale else []
        return F.concat(F.when(below, F.lit("-")).otherwise(F.lit("")), whole, *part)

    return _let(F.concat(F.lit("0" * (scale + 1)), digits), shown)


def _let(value: SparkColumn, body: Callable[[SparkColumn], SparkColumn]) -> SparkColumn:
    """Apply `body` to `value`, which is computed once even if `body` uses it several times."""
    return F.element_at(F.transform(F.array(value), body), 1)
