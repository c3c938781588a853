"""Where Spark finds the data source `barnabas` by itself: it looks for top-level modules named pyspark_*.

An error while it looks would hide every Python data source of the session, so where pyspark is too old or absent, this
module simply offers none.
"""

from __future__ import annotations

try:
    from barnabas.spark.source import BarnabasSource as DefaultSource
except Exception:  # whatever it is, the other sources must not suffer
    __all__: list[str] = []
else:
    __all__ = ["DefaultSource"]
