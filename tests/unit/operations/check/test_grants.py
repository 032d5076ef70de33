"""Parsing of the output of `SHOW GRANTS`."""

import pytest

from replicator.operations.check.source_facts import parse_grants

USER = "TO `replicator`@`%`"


def test_parse_grants_reads_static_and_dynamic_global_privileges() -> None:
    grants = parse_grants(
        [
            f"GRANT SELECT, RELOAD, REPLICATION SLAVE ON *.* {USER}",
            f"GRANT FLUSH_TABLES ON *.* {USER} WITH GRANT OPTION",
        ]
    )
    assert grants.globally("REPLICATION SLAVE")
    assert grants.globally("RELOAD", "FLUSH_TABLES")
    assert not grants.globally("REPLICATION CLIENT")
    assert grants.on_table("SELECT", "any", "table")


def test_parse_grants_expands_all_privileges() -> None:
    grants = parse_grants([f"GRANT ALL PRIVILEGES ON *.* {USER}"])
    assert grants.globally("REPLICATION CLIENT")
    assert grants.somewhere("LOCK TABLES")
    assert grants.on_table("SELECT", "a", "b")


@pytest.mark.parametrize(
    ("level", "table", "granted"),
    [
        ("`shop`.*", ("shop", "orders"), True),
        ("`shop`.*", ("shop2", "orders"), False),
        ("`sh%`.*", ("shop", "orders"), True),
        ("`shop_1`.*", ("shopx1", "orders"), True),
        (r"`shop\_1`.*", ("shopx1", "orders"), False),
        (r"`shop\_1`.*", ("shop_1", "orders"), True),
        ("`shop`.`orders`", ("shop", "orders"), True),
        ("`shop`.`orders`", ("shop", "items"), False),
        ("`a``b`.`c.d`", ("a`b", "c.d"), True),
    ],
)
def test_parse_grants_distinguishes_levels(level: str, table: tuple[str, str], granted: bool) -> None:
    assert parse_grants([f"GRANT SELECT ON {level} {USER}"]).on_table("SELECT", *table) is granted


def test_privilege_on_columns_does_not_apply_to_the_table() -> None:
    grants = parse_grants([f"GRANT SELECT (`a`, `b`), INSERT ON `shop`.`orders` {USER}"])
    assert not grants.on_table("SELECT", "shop", "orders")
    assert grants.on_table("INSERT", "shop", "orders")


def test_partial_revoke_removes_the_privilege_on_a_database() -> None:
    grants = parse_grants(
        [f"GRANT SELECT ON *.* {USER}", "REVOKE SELECT ON `secret`.* FROM `replicator`@`%`"]
    )
    assert grants.on_table("SELECT", "shop", "orders")
    assert not grants.on_table("SELECT", "secret", "orders")


def test_usage_roles_and_proxies_grant_no_privilege() -> None:
    grants = parse_grants(
        [f"GRANT USAGE ON *.* {USER}", f"GRANT `role`@`%` {USER}", f"GRANT PROXY ON ``@`` {USER}"],
    )
    assert not grants.globally("SELECT")
    assert not grants.somewhere("LOCK TABLES")
