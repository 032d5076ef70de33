"""What MySQL's statements and types mean, and what follows for lake tables. Pure.

`ddl` reads statements, `types` has the table of MySQL's types, `history` the versions of a table's definition, and
`evolution` plans the changes from one version to another.
"""
