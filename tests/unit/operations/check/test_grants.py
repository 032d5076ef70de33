"""Reading the output of `SHOW GRANTS`."""

from replicator.operations.check.source_facts import Grants

USER = "TO `replicator`@`%`"


def test_static_and_dynamic_global_privileges_are_read() -> None:
    grants = Grants(
        (
            f"GRANT SELECT, RELOAD, REPLICATION SLAVE ON *.* {USER}",
            f"GRANT FLUSH_TABLES ON *.* {USER} WITH GRANT OPTION",
        )
    )
    assert grants.globally("REPLICATION SLAVE")
    assert grants.globally("LOCK TABLES", "FLUSH_TABLES")
    assert not grants.globally("REPLICATION CLIENT")
    assert not grants.locks_tables()


def test_all_privileges_have_each() -> None:
    grants = Grants((f"GRANT ALL PRIVILEGES ON *.* {USER}",))
    assert grants.globally("REPLICATION CLIENT")
    assert grants.locks_tables()


def test_privileges_on_a_database_are_not_global() -> None:
    grants = Grants((f"GRANT SELECT, LOCK TABLES ON `shop`.* {USER}",))
    assert not grants.globally("LOCK TABLES")
    assert grants.locks_tables()
    assert Grants((f"GRANT ALL PRIVILEGES ON `shop`.* {USER}",)).locks_tables()
