"""Reads texts as Spark's own JSON and CSV readers do, in plain Python: tasks of a data source cannot call the JVM."""
