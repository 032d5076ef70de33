"""Packed positions in frames are those of `PackedPosition`."""

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from replicator.decode.event_frame import file_number
from replicator.jvm.position_columns import pos_of, position_key, row_key, row_of
from replicator.model.position import MOST_FILES, MOST_POS, PackedPosition, SourcePosition, binlog_number

CASES = [
    (1, 4, 0, 0),
    (1, 4, 0, 1),
    (999_999, MOST_POS, 7, 1),
    (1_000_000, 0, 1 << 30, 0),
    (MOST_FILES, MOST_POS, 3, 1),
]


def test_position_columns_equal_packed_positions(spark: SparkSession) -> None:
    frame = spark.createDataFrame(CASES, "number long, pos long, row int, kind int")
    keys = position_key(F.col("number"), F.col("pos")), row_key(F.col("row"), F.col("kind"))
    packed = frame.select("*", keys[0].alias("position_key"), keys[1].alias("row_key"))
    for found in packed.select(
        "*", pos_of(F.col("position_key")).alias("p"), row_of(F.col("row_key")).alias("r")
    ).collect():
        position = SourcePosition(f"b.{found.number}", found.pos, found.row)
        assert PackedPosition(found.position_key, found.row_key) == PackedPosition.pack(position, found.kind)
        assert (found.p, found.r) == (found.pos, found.row)


NAMES = [
    *(
        "b.000012",
        "12",
        "b.1.2",
        "",
        ".",
        "b",
        "b.",
        "b.+7",
        "b.-7",
        "b.-0",
        "b. 7",
        "b.7 ",
        "b.\x00\x1f7\x7f",
        "b.\x807",
    ),
    *(
        "b.7\xa0",
        "b.\u20037",
        "b.1e3",
        "b.1_0",
        "b.٣",
        "b.+",
        "b.+-7",
        "b.0x7",
        "b.7L",
        "b.NaN",
        "b." + "0" * 5000 + "7",
    ),
    *(f"b.{MOST_FILES}", f"b.{MOST_FILES + 1}", f"b.{1 << 63}", "b." + "9" * 5000),
]


def test_driver_and_spark_accept_the_same_binlog_file_names(spark: SparkSession) -> None:
    frame = spark.createDataFrame([(name,) for name in NAMES], "file string")
    number = file_number(F.struct("file"))
    found = {
        r.file: r.n
        for r in frame.select("file", F.when(number.between(0, MOST_FILES), number).alias("n")).collect()
    }
    assert found == {name: accepted_number(name) for name in NAMES}


def accepted_number(name: str) -> int | None:
    try:
        return binlog_number(name)
    except ValueError:
        return None
