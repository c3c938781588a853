"""The road of a record from the producer to its leader: batches, their order and identity, transactions."""
