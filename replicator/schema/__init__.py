"""Schema history, schema changes and their plans, MySQL types and DDL. Standard library only."""
