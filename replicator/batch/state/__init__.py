"""What a mirror process remembers between batches; threads of several tables use it."""
