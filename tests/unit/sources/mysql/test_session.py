"""The settings of sessions that read the source."""

from urllib.parse import parse_qs, urlsplit

from replicator.config import SourceConfig
from replicator.sources.mysql.connection import SESSION, jdbc_url

NAMES = ("time_zone", "sql_mode", "character_set_results", "sql_select_limit", "max_execution_time")


def test_all_drivers_get_the_same_settings_and_spark_gets_them_in_the_url() -> None:
    url = "mysql://me@[::1]:3307/shop"
    source = SourceConfig.model_validate({"url": url, "tables": ("shop.*",), "ssl_mode": "disabled"})
    address, _, query = jdbc_url(source).partition("?")
    options = {name: values[0] for name, values in parse_qs(query).items()}
    assert address == "jdbc:mysql://[::1]:3307/"
    assert options["sslMode"] == "DISABLED"
    assert urlsplit(jdbc_url(source).removeprefix("jdbc:")).username is None
    made = options["sessionVariables"].split(",")
    assert all(f"{name}=" in options["sessionVariables"] for name in NAMES)
    assert all(setting.replace("=", " = ", 1) in SESSION for setting in made)
