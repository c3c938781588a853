"""A partition's log on disk, in Kafka's file formats."""
