"""The `barnabas` command: one short file per verb."""
