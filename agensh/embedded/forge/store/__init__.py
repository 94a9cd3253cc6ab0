"""The forge's rows: one SQLite file, one writer."""
