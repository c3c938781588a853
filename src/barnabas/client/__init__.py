"""A thin client of the protocol: metadata, produce, fetch, admin."""
