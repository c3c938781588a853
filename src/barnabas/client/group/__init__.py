"""A consumer's place in its group: joining, heartbeats, what it is assigned, and committed offsets."""
