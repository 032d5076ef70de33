"""How the lake tables of a source table follow its schema."""
