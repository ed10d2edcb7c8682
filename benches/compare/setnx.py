"""What a Python consumer does without a service: a digest and SET NX PX for every event, awaited one
at a time, in a gather of 500, or in a pipeline of 500. Arguments: port, way, warm-up and duration in
seconds. Prints one JSON object."""

import asyncio
import hashlib
import json
import sys
import time

import redis.asyncio

BATCH = 500
TTL_MS = 300_000


def key(number):
    material = f"asset-{number}|1700000000|8c1f8c2d1a5b3ff".encode()
    return f"dedup:{hashlib.blake2b(material, digest_size=16).hexdigest()}"


async def one_at_a_time(client, first):
    for number in range(first, first + BATCH):
        assert await client.set(key(number), b"1", nx=True, px=TTL_MS)


async def gathered(client, first):
    numbers = range(first, first + BATCH)
    won = await asyncio.gather(*(client.set(key(n), b"1", nx=True, px=TTL_MS) for n in numbers))
    assert all(won)


async def pipelined(client, first):
    async with client.pipeline(transaction=False) as pipe:
        for number in range(first, first + BATCH):
            pipe.set(key(number), b"1", nx=True, px=TTL_MS)
        assert all(await pipe.execute())


WAYS = {"one": one_at_a_time, "gather": gathered, "pipeline": pipelined}


async def main(port, way, warm_up_s, duration_s):
    client = redis.asyncio.Redis(port=int(port), max_connections=BATCH)
    claim, sent, begun = WAYS[way], 0, time.monotonic()
    while time.monotonic() < begun + float(warm_up_s):
        await claim(client, sent)
        sent += BATCH
    before, cpu, begun = sent, time.process_time(), time.monotonic()
    while time.monotonic() < begun + float(duration_s):
        await claim(client, sent)
        sent += BATCH
    took, cpu, events = time.monotonic() - begun, time.process_time() - cpu, sent - before
    await client.aclose()
    print(json.dumps({"events_per_s": events / took, "cpu_per_event_ns": cpu * 1e9 / events}))


asyncio.run(main(*sys.argv[1:]))
