"""The direct path: tasks of Spark's fetch, decode and write rows with Arrow, and no row enters the JVM."""
