"""The settings of every session that reads the source, whichever driver opens it.

A server or an account may have other defaults for each of them (`SET GLOBAL`, `init_connect`). Expressions, literals
and results have the meaning that the engine assumes only with these.
"""

from collections.abc import Mapping
from typing import Final
from urllib.parse import urlencode

from replicator.config import SourceConfig

_SETTINGS: Final[Mapping[str, str]] = {
    # TIMESTAMPs are read and compared in UTC.
    "time_zone": "'+00:00'",
    # Zero dates are no errors, quotes and operators have their usual meaning, and CHARs are not padded.
    "sql_mode": "''",
    "character_set_client": "'utf8mb4'",
    "character_set_connection": "'utf8mb4'",
    "character_set_results": "'utf8mb4'",
    # Whatever limits the server sets, queries return all rows, however long that takes.
    "sql_select_limit": "18446744073709551615",
    "max_execution_time": "0",
    "sql_big_selects": "1",
    "sql_auto_is_null": "0",
    "sql_quote_show_create": "1",
    # A slow writer does not end the connection.
    "net_write_timeout": "3600",
}
_SINCE_8_0_30: Final = "/*!80030 , show_gipk_in_create_table_and_information_schema = 1 */"
"""A key that MySQL generated is a column like others."""
SESSION: Final = f"SET SESSION {', '.join(f'{k} = {v}' for k, v in _SETTINGS.items())} {_SINCE_8_0_30}"
"""The statement that makes the settings."""
_CONNECTOR_J: Final = {
    "sessionVariables": ",".join(f"{name}={value}" for name, value in _SETTINGS.items()),
    # Otherwise, the driver asks for text in the character sets of the columns, and decodes it by those of Java.
    "characterEncoding": "UTF-8",
    "characterSetResults": "UTF-8",
    "connectionTimeZone": "UTC",
    "forceConnectionTimeZoneToSession": "true",
    # Numbers and floats are sent in binary form.
    "useServerPrepStmts": "true",
    # A name such as {d'2001-01-01'} is a name.
    "processEscapeCodesForPrepStmts": "false",
    # Without TLS, the password is sent encrypted with the server's key.
    "allowPublicKeyRetrieval": "true",
    "tinyInt1isBit": "false",
    "yearIsDateType": "false",
    "tcpKeepAlive": "true",
}


def jdbc_url(source: SourceConfig) -> str:
    """Return the URL for Connector/J with all options, without user and password.

    Spark would change options beside the URL to lower case, and Connector/J ignores those that it does not know.
    """
    server = source.server()
    host = f"[{server.host}]" if ":" in server.host else server.host
    options = urlencode({**_CONNECTOR_J, "sslMode": source.ssl_mode.upper()})
    return f"jdbc:mysql://{host}:{server.port}/?{options}"
