"""The lines that MySQL 9.7 answers to `SHOW BINLOG EVENTS`, of transactions of several kinds.

Recorded, with the names of the database and of the server replaced. A line has offset, type, offset after the event,
and description, between tabs.
"""

# ruff: noqa: E501 - recorded lines

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from sqlalchemy import Connection

from replicator.sources.binlog.deviations import ListedEvent

UUID = "bd6b9431-e951-11f1-9e91-02fc00000001"
FILE = "mysql-bin.000001"
SERVER = "3e11"


def listed(text: str, file: str = FILE) -> list[ListedEvent]:
    """Return the events in recorded lines."""
    rows = [line.split("\t") for line in text.strip().splitlines()]
    return [ListedEvent(file, int(pos), kind, int(end), info) for pos, kind, end, info in rows]


ROLLED_BACK = f"""
867	Gtid	946	SET @@SESSION.GTID_NEXT= '{UUID}:4'
946	Query	1048	XA START X'7831',X'',1
1048	Table_map	1126	table_id: 122 (shop.a)
1126	Write_rows	1169	table_id: 122 flags: STMT_END_F USE_SQL_FOREIGN_KEY_F
1169	Table_map	1247	table_id: 139 (shop.b)
1247	Write_rows	1290	table_id: 139 flags: STMT_END_F USE_SQL_FOREIGN_KEY_F
1290	Query	1390	XA END X'7831',X'',1
1390	XA_prepare	1428	XA PREPARE X'7831',X'',1
1428	Gtid	1505	SET @@SESSION.GTID_NEXT= '{UUID}:5'
1505	Query	1610	XA ROLLBACK X'7831',X'',1
"""

COMMITTED = f"""
1610	Gtid	1689	SET @@SESSION.GTID_NEXT= '{UUID}:6'
1689	Query	1793	XA START X'6162',X'0a',1
1793	Table_map	1871	table_id: 122 (shop.a)
1871	Write_rows	1914	table_id: 122 flags: STMT_END_F USE_SQL_FOREIGN_KEY_F
1914	Query	2016	XA END X'6162',X'0a',1
2016	XA_prepare	2055	XA PREPARE X'6162',X'0a',1
2055	Gtid	2132	SET @@SESSION.GTID_NEXT= '{UUID}:7'
2132	Query	2237	XA COMMIT X'6162',X'0a',1
"""


COMPRESSED = f"""
2687	Gtid	2766	SET @@SESSION.GTID_NEXT= '{UUID}:9'
2766	Transaction_payload	2995	compression='ZSTD', decompressed_size=336 bytes
2995	Query	2995	XA START X'7a',X'',1
2995	Table_map	2995	table_id: 122 (shop.a)
2995	Write_rows	2995	table_id: 122 flags: STMT_END_F USE_SQL_FOREIGN_KEY_F
2995	Query	2995	XA END X'7a',X'',1
2995	XA_prepare	2995	XA PREPARE X'7a',X'',1
2995	Gtid	3072	SET @@SESSION.GTID_NEXT= '{UUID}:10'
3072	Query	3175	XA ROLLBACK X'7a',X'',1
3175	Gtid	3254	SET @@SESSION.GTID_NEXT= '{UUID}:11'
"""

ROWS = f"""
3463	Gtid	3542	SET @@SESSION.GTID_NEXT= '{UUID}:12'
3542	Query	3627	BEGIN
3627	Table_map	3705	table_id: 122 (shop.a)
3705	Write_rows	3748	table_id: 122 flags: STMT_END_F USE_SQL_FOREIGN_KEY_F
3748	Xid	3779	COMMIT /* xid=155 */
"""

STATEMENTS = f"""
4429	Gtid	4508	SET @@SESSION.GTID_NEXT= '{UUID}:15'
4508	Query	4610	BEGIN
4610	Query	4740	use `shop`; INSERT INTO a VALUES (10,'s;t')
4740	Xid	4771	COMMIT /* xid=174 */
4771	Gtid	4850	SET @@SESSION.GTID_NEXT= '{UUID}:16'
4850	Query	4961	BEGIN
4961	Query	5109	use `shop`; UPDATE a JOIN b ON a.id=b.id SET a.v='j'
5109	Query	5221	COMMIT
5221	Gtid	5300	SET @@SESSION.GTID_NEXT= '{UUID}:17'
5300	Query	5402	BEGIN
5402	Query	5534	use `shop`; DELETE a FROM a JOIN b USING (id)
5534	Query	5637	COMMIT
5637	Gtid	5716	SET @@SESSION.GTID_NEXT= '{UUID}:18'
5716	Query	5818	BEGIN
5818	Query	5948	use `shop`; REPLACE INTO `b` VALUES (9,'r')
5948	Xid	5979	COMMIT /* xid=177 */
5979	Gtid	6058	SET @@SESSION.GTID_NEXT= '{UUID}:19'
6058	Query	6160	BEGIN
6160	Query	6294	use `shop`; INSERT INTO b SELECT id+100, v FROM a
6294	Xid	6325	COMMIT /* xid=178 */
"""

DEFINITIONS = f"""
6402	Query	6543	use `shop`; CREATE TABLE c AS SELECT * FROM a /* xid=179 */
6543	Gtid	6620	SET @@SESSION.GTID_NEXT= '{UUID}:21'
6620	Query	6753	use `shop`; CREATE TEMPORARY TABLE tt (id INT)
7861	Gtid	7938	SET @@SESSION.GTID_NEXT= '{UUID}:25'
7938	Query	8043	use `shop`; TRUNCATE TABLE c /* xid=188 */
8043	Gtid	8120	SET @@SESSION.GTID_NEXT= '{UUID}:26'
8120	Query	8251	use `shop`; ALTER TABLE c ADD x INT /* xid=189 */
9011	Gtid	9090	SET @@SESSION.GTID_NEXT= '{UUID}:29'
9090	Query	9351	use `shop`; CREATE DEFINER=`root`@`%` FUNCTION `f`(x INT) RETURNS int     MODIFIES SQL DATA     DETERMINISTIC BEGIN INSERT INTO b VALUES (x,'f'); RETURN x; END /* xid=196 */
9351	Gtid	9430	SET @@SESSION.GTID_NEXT= '{UUID}:30'
9430	Query	9626	use `shop`; CREATE DEFINER=`root`@`%` PROCEDURE `p`() BEGIN INSERT INTO a VALUES (77,'p'); END /* xid=197 */
"""

CALLS = f"""
9626	Gtid	9705	SET @@SESSION.GTID_NEXT= '{UUID}:31'
9705	Query	9807	BEGIN
9807	Query	9936	use `shop`; SELECT `shop`.`f`(500)
9936	Xid	9967	COMMIT /* xid=199 */
8251	Gtid	8330	SET @@SESSION.GTID_NEXT= '{UUID}:27'
8330	Query	8432	BEGIN
8432	User var	8474	@`u`=_utf8mb4 0x75736572 COLLATE utf8mb4_0900_ai_ci
8474	Query	8601	use `shop`; INSERT INTO a VALUES (13,@u)
8601	Xid	8632	COMMIT /* xid=192 */
"""


CASCADES = f"""
1466	Gtid	1545	SET @@SESSION.GTID_NEXT= '{UUID}:6'
1545	Query	1622	BEGIN
1622	Table_map	1683	table_id: 106 (shop.a)
1683	Delete_rows	1727	table_id: 106 flags: STMT_END_F
1727	Xid	1758	COMMIT /* xid=14 */
1758	Gtid	1837	SET @@SESSION.GTID_NEXT= '{UUID}:7'
1837	Query	1923	BEGIN
1923	Table_map	1984	table_id: 106 (shop.a)
1984	Update_rows	2038	table_id: 106 flags: STMT_END_F
2038	Xid	2069	COMMIT /* xid=16 */
2069	Gtid	2148	SET @@SESSION.GTID_NEXT= '{UUID}:8'
2148	Query	2225	BEGIN
2225	Table_map	2286	table_id: 106 (shop.a)
2286	Delete_rows	2330	table_id: 106
2330	Write_rows	2374	table_id: 106 flags: STMT_END_F
2374	Xid	2405	COMMIT /* xid=18 */
"""
"""Deletes, updates and replaces a row, with `innodb_native_foreign_keys`."""

PREPARED_CASCADE = f"""
2405	Gtid	2484	SET @@SESSION.GTID_NEXT= '{UUID}:9'
2484	Query	2576	XA START X'78',X'',1
2576	Table_map	2637	table_id: 106 (shop.a)
2637	Delete_rows	2681	table_id: 106 flags: STMT_END_F
2681	Query	2769	XA END X'78',X'',1
2769	XA_prepare	2806	XA PREPARE X'78',X'',1
2806	Gtid	2883	SET @@SESSION.GTID_NEXT= '{UUID}:10'
2883	Query	2974	XA COMMIT X'78',X'',1
"""


LOGGED_CASCADES = f"""
1466	Gtid	1545	SET @@SESSION.GTID_NEXT= '{UUID}:6'
1545	Query	1624	BEGIN
1624	Table_map	1685	table_id: 106 (shop.a)
1685	Table_map	1746	table_id: 108 (shop.b)
1746	Delete_rows	1790	table_id: 108 flags: NO_FOREIGN_KEY_CHECKS_F USE_SQL_FOREIGN_KEY_F
1790	Delete_rows	1834	table_id: 106 flags: STMT_END_F USE_SQL_FOREIGN_KEY_F
1834	Xid	1865	COMMIT /* xid=14 */
2400	Gtid	2479	SET @@SESSION.GTID_NEXT= '{UUID}:8'
2479	Query	2508	BEGIN
2508	Table_map	2569	table_id: 106 (shop.a)
2569	Delete_rows	2613	table_id: 106 flags: USE_SQL_FOREIGN_KEY_F
2613	Write_rows	2657	table_id: 106 flags: STMT_END_F USE_SQL_FOREIGN_KEY_F
2657	Xid	2688	COMMIT /* xid=18 */
3246	Gtid	3325	SET @@SESSION.GTID_NEXT= '{UUID}:12'
3325	Transaction_payload	3503	compression='ZSTD', decompressed_size=206 bytes
3503	Query	3503	BEGIN
3503	Table_map	3503	table_id: 106 (shop.a)
3503	Delete_rows	3503	table_id: 106 flags: STMT_END_F NO_FOREIGN_KEY_CHECKS_F
3503	Xid	3503	COMMIT /* xid=29 */
"""
"""Cascades that have events, a replaced row, and a delete without foreign keys."""


class Rows(list[tuple[Any, ...]]):
    def all(self) -> "Rows":
        return self

    def first(self) -> tuple[Any, ...] | None:
        return self[0] if self else None


@dataclass
class ListingServer:
    """Has the events of some files; the last one is written."""

    files: dict[str, list[ListedEvent]]
    uuid: str = SERVER
    gtids: str = ""
    cascades: list[tuple[str, ...]] = field(default_factory=list)
    statements: list[str] = field(default_factory=list)
    use_unicode: bool = True

    @property
    def dbapi_connection(self) -> "ListingServer":
        return self

    @property
    def connection(self) -> Connection:
        return cast("Connection", self)

    def execution_options(self, **_: object) -> None:
        return None

    def scalar(self, statement: object) -> str:
        return self.uuid if "server_uuid" in str(statement) else "9.7.0"

    def execute(self, statement: object) -> Rows:
        name = list(self.files)[-1]
        if "referential_constraints" in str(statement):
            return Rows(self.cascades)
        if "STATUS" in str(statement):
            return Rows([(name, self._size(name), "", "", self.gtids)])
        return Rows((name, self._size(name), "No") for name in self.files)

    def _size(self, name: str) -> int:
        return self.files[name][-1].end if self.files[name] else 4

    def exec_driver_sql(self, statement: str, names: Sequence[str]) -> Rows:
        self.statements.append(statement)
        words = statement.split()
        start, most = int(words[words.index("FROM") + 1]) if "FROM" in words else 4, int(words[-1])
        found = [e for e in self.files[names[0]] if e.pos >= start]
        # The events in a compressed transaction are listed behind it, and not without it.
        while found and found[0].pos == found[0].end:
            found.pop(0)
        sent = self._sent
        return Rows((e.file, e.pos, sent(e.kind), 1, e.end, sent(e.info)) for e in found[:most])

    def _sent(self, value: str) -> str | bytes:
        """Return a text as PyMySQL does. An escaped byte in it is not of UTF-8."""
        sent = value.encode("utf-8", "surrogateescape")
        return sent.decode() if self.use_unicode else sent
