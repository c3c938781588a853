"""The road of a record from its leader to the consumer: fetches, what is buffered, and the caller's place."""
