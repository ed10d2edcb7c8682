"""examples/python/micro_batch.py: one awaited event at a time, one call for many."""

import asyncio
import sys
import time

import grpc
import pytest
import redis.asyncio

import servers

sys.path.insert(0, str(servers.ROOT / "examples/python"))

from dedupd.v1 import dedup_pb2_grpc, event_pb2, verdict_pb2
from micro_batch import MicroBatcher

CONFIG = """
store: { budget: 5s }  # The machine may be busy.
namespaces:
  one: { accepts: [keyed], window: none, ttl: 48h, failure_mode: closed, lease: 5m }
"""
ADMIT, SUPPRESS = verdict_pb2.DECISION_ADMIT, verdict_pb2.DECISION_SUPPRESS


def keyed(event_id):
    return event_pb2.Event(keyed=event_pb2.Keyed(event_id=event_id))


class Counted:
    """The stub, and how many calls went through it."""

    def __init__(self, stub):
        self.stub, self.admits, self.most = stub, 0, 0
        self.on_their_way = 0

    async def Admit(self, request, timeout):
        self.admits += 1
        self.on_their_way += 1
        self.most = max(self.most, self.on_their_way)
        try:
            return await self.stub.Admit(request, timeout=timeout)
        finally:
            self.on_their_way -= 1

    async def Release(self, request, timeout):
        return await self.stub.Release(request, timeout=timeout)


def run(address, scenario):
    async def with_batcher():
        async with grpc.aio.insecure_channel(address) as channel:
            counted = Counted(dedup_pb2_grpc.DedupServiceStub(channel))
            await scenario(MicroBatcher(counted, "one", max_events=100), counted)

    asyncio.run(with_batcher())


def test_every_caller_gets_its_own_verdict(dedupd):
    async def scenario(batcher, counted):
        ids = [f"own-{number % 400}" for number in range(1000)]
        verdicts = await asyncio.gather(*(batcher.admit(keyed(each)) for each in ids))
        admitted = [each for each, said in zip(ids, verdicts) if said.decision == ADMIT]
        assert sorted(admitted) == sorted(set(ids)), "each id once"
        assert counted.admits == 10, "a thousand events, a hundred a call"
        assert counted.most <= 2

    run(dedupd.address, scenario)


def test_a_lone_event_waits_for_no_other(dedupd):
    async def scenario(batcher, counted):
        for number in range(20):
            assert (await batcher.admit(keyed(f"lone-{number}"))).decision == ADMIT
        assert counted.admits == 20

    run(dedupd.address, scenario)


def test_what_a_cancelled_caller_had_claimed_is_given_back(dedupd):
    async def scenario(batcher, counted):
        callers = [asyncio.create_task(batcher.admit(keyed(f"gone-{n}"))) for n in range(10)]
        while not counted.admits:
            await asyncio.sleep(0)
        callers[3].cancel()
        ended = await asyncio.gather(*callers, return_exceptions=True)
        assert isinstance(ended[3], asyncio.CancelledError)
        await batcher.close()
        again = [await batcher.admit(keyed(f"gone-{n}")) for n in range(10)]
        # The others are in flight under their leases.
        assert [n for n, said in enumerate(again) if said.decision == ADMIT] == [3]

    run(dedupd.address, scenario)


def test_an_error_reaches_every_caller_and_stops_no_later_one(dedupd):
    async def scenario(batcher, counted):
        batcher.namespace = "no-such-namespace"
        callers = (batcher.admit(keyed(f"error-{n}")) for n in range(5))
        ended = await asyncio.gather(*callers, return_exceptions=True)
        assert [error.code() for error in ended] == [grpc.StatusCode.NOT_FOUND] * 5
        batcher.namespace = "one"
        assert (await batcher.admit(keyed("error-0"))).decision == ADMIT

    run(dedupd.address, scenario)


def test_faster_than_a_set_for_each_event(dedupd, redis_server):
    """The seeds' way: as many awaited SETs at a time. The ratio in docs is of a release build."""
    count, at_a_time = 5000, 500

    async def seconds(admit):
        began = time.perf_counter()
        for first in range(0, count, at_a_time):
            await asyncio.gather(*(admit(n) for n in range(first, first + at_a_time)))
        return time.perf_counter() - began

    async def scenario(batcher, counted):
        batcher.max_events = at_a_time
        client = redis.asyncio.Redis.from_url(redis_server.url, max_connections=at_a_time)
        sets = await seconds(lambda n: client.set(f"fast-{n}", 1, nx=True, ex=60))
        ours = await seconds(lambda n: batcher.admit(keyed(f"fast-{n}")))
        await client.aclose()
        print(f"{sets / ours:.1f} times a gather of SETs")
        assert ours < sets

    run(dedupd.address, scenario)
