"""Tables of a database as a pipeline's sink: rows are staged by tasks, and merged with their offsets by the driver."""
