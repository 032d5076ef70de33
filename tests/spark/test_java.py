"""Calls of Java's static methods."""

import pytest
from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from replicator.lake.catalog.java import StaticMembers


def test_static_methods_are_found_beside_methods_of_objects_with_the_same_name(spark: SparkSession) -> None:
    """In which order Java lists them differs between processes: each of these has both."""
    java = spark._jvm.java.lang  # type: ignore[union-attr]
    assert StaticMembers(java.Integer).toString(5) == "5"
    assert StaticMembers(java.Long).hashCode(7) == 7
    assert StaticMembers(java.Double).isNaN(1.5) is False
    assert StaticMembers(java.Float).isInfinite(1.5) is False
    assert StaticMembers(java.Boolean).hashCode(True) == 1231
    assert StaticMembers(java.Character).toString(65) == "A"


def test_a_method_that_does_not_exist_is_an_error(spark: SparkSession) -> None:
    java = spark._jvm.java.lang  # type: ignore[union-attr]
    with pytest.raises(Py4JError):
        StaticMembers(java.Integer).unknown()
