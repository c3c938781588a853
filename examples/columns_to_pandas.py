"""Write a table and read it back as data frames: no Python object per record on either way.

python examples/columns_to_pandas.py localhost:9092 readings
"""

from __future__ import annotations

import asyncio
import sys

import pandas
import pyarrow

from barnabas import Consumer, Producer

ROWS = 100_000


async def main(address: str, topic: str) -> None:
    table = pyarrow.table(
        {
            "key": [f"sensor {number % 10}".encode() for number in range(ROWS)],
            "value": [b"%d" % number for number in range(ROWS)],
        }
    )
    async with Producer(address, compression_type="zstd") as producer:
        await producer.send_columns(topic, table)

    frames: list[pandas.DataFrame] = []
    async with Consumer(address, topics=[topic], auto_offset_reset="earliest") as consumer:
        async for batch in consumer.batches():
            frames.append(batch.to_pandas("key", "value"))
            if sum(map(len, frames)) == ROWS:
                break
    frame = pandas.concat(frames)
    print(frame["value"].astype(int).groupby(frame["key"]).max())


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
