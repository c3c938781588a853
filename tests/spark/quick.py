"""Settings under which Spark starts soon and runs tiny jobs at little cost.

Short work ends before code that a better compiler makes for it would pay, be it Java's or Spark's own.
"""

from __future__ import annotations

QUICK_JVM = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
QUICK_SPARK = {
    "spark.driver.extraJavaOptions": QUICK_JVM,
    "spark.driver.memory": "1g",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.python.authenticate.socketTimeout": "2min",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
}
