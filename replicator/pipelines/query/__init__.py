"""What a pipeline's SQL means: its definition, its inputs, and the SQL that brings its result up to date.

Nothing here reads a lake or starts Spark. `plan` says what the executor gets.
"""
