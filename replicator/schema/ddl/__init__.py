"""Extract from MySQL's statements what they do to tables, keys, partitions and rows. Text in, values out."""
