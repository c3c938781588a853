"""The cluster's metadata, the controller that changes it, and the partitions that it describes."""
