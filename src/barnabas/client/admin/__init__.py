"""Administration of a cluster: one module per noun, functions on a client, typed values as results."""
