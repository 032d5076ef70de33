"""Read the lake in Python, without Java and Spark; only folders of dropped tables are ever written here."""
