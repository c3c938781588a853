"""Settings under which Spark starts soon and runs tiny jobs at little cost.

Short work ends before code that a better compiler makes for it would pay, be it Java's or Spark's own.
"""

from __future__ import annotations

QUICK_JVM = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
QUICK_DRIVER_JVM = f"{QUICK_JVM} -Xms512m -XX:MetaspaceSize=256m"
"""With room from the start, in place of many collections on the way there."""
QUICK_SPARK = {
    "spark.driver.extraJavaOptions": QUICK_DRIVER_JVM,
    "spark.driver.memory": "1g",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.python.authenticate.socketTimeout": "2min",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
}
