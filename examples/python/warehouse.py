"""A consumer of NATS JetStream that handles every order once.

JetStream delivers again what was not acknowledged within `ack_wait`, and producers send twice.
dedupd says which copy is to be handled, and by whom.
"""

import argparse
import asyncio
import json
import logging
import signal
import time
import uuid
from collections import Counter
from pathlib import Path

import grpc
import nats
from nats.js.api import ConsumerConfig

from dedupd.v1 import dedup_pb2, dedup_pb2_grpc, event_pb2, verdict_pb2

NAMESPACE = "orders"
MAX_BATCH = 50
# After so many failures an order goes to the dead-letter subject.
MAX_FAILURES = 3
SETTLE_PAUSE_S = 0.1

# The deadline is for all attempts of a call together. Admit may be retried because every attempt
# carries the same request id; settling may be retried because it says so if it was done before.
SERVICE_CONFIG = {
    "methodConfig": [
        {
            "name": [{"service": "dedupd.v1.DedupService"}],
            "timeout": "5s",
            "waitForReady": True,
            "retryPolicy": {
                "maxAttempts": 5,
                "initialBackoff": "0.05s",
                "maxBackoff": "1s",
                "backoffMultiplier": 2,
                "retryableStatusCodes": ["UNAVAILABLE", "RESOURCE_EXHAUSTED"],
            },
        }
    ]
}
CHANNEL_OPTIONS = [
    ("grpc.service_config", json.dumps(SERVICE_CONFIG)),
    ("grpc.max_reconnect_backoff_ms", 2_000),  # The default waits up to two minutes.
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 3_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.default_authority", "localhost"),  # Over a Unix socket its path would be refused.
]
CALL_AGAIN = {
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.DEADLINE_EXCEEDED,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
}


# The work of this example. Replace it by yours, in two steps: what takes long and may be given up,
# and the effect.


async def pick(order):
    """Takes as long as it takes and changes nothing."""
    await asyncio.sleep(order.get("pick_ms", 0) / 1000)


def ship(out, order):
    """A line in the file of the warehouse. It fails if there is no such warehouse."""
    with (out / Path(order["warehouse"]).name / "shipped.txt").open("a") as file:
        file.write(order["id"] + "\n")


class Held:
    """A message that we were admitted for, and until when it is surely ours."""

    def __init__(self, message, order, claim, until):
        self.message, self.order, self.claim, self.until = message, order, claim, until

    def is_ours(self):
        """Nobody else can have been admitted since. Ask just before the effect."""
        return time.monotonic() < self.until


class Warehouse:
    def __init__(self, dedupd, jetstream, subject, out, stopped):
        self.dedupd, self.jetstream, self.out = dedupd, jetstream, out
        self.stopped = stopped
        self.dead_letters = f"{subject}.dead"
        self.failures = Counter()
        self.lease_s = 0
        self.held = {}  # by claim: what is not settled yet

    async def handle(self, messages):
        """Asks about a batch and does what the verdicts say."""
        orders = [read(message) for message in messages]
        asked = time.monotonic()
        answer = await self.admit([keyed(order) for order in orders])
        self.lease_s = answer.lease.ToTimedelta().total_seconds()
        until = asked + self.lease_s if self.lease_s else float("inf")
        admitted = []
        for message, order, verdict in zip(messages, orders, answer.verdicts, strict=True):
            match verdict.decision:
                case verdict_pb2.DECISION_ADMIT:
                    admitted.append(Held(message, order, verdict.claim, until))
                case verdict_pb2.DECISION_SUPPRESS:
                    await message.ack()
                case verdict_pb2.DECISION_DEAD_LETTER:
                    reason = verdict_pb2.Reason.Name(verdict.reason)
                    await self.dead_letter(message, f"{reason}: {verdict.detail}")
                    await message.ack()
                case _:  # RETRY, and what this program does not know yet
                    pause = verdict.retry_after.ToTimedelta().total_seconds()
                    await message.nak(delay=pause or 1)
        self.held = {held.claim: held for held in admitted if held.claim}
        renewing = asyncio.create_task(self.keep())
        try:
            for held in admitted:
                if not self.stopped.is_set():
                    await self.work(held)
        finally:
            renewing.cancel()
        if self.held:  # We were stopped: others need not wait for the leases.
            await self.release(*self.held)
            for held in self.held.values():
                await held.message.nak()

    async def admit(self, events):
        """Asks, and again under the same request id until there is an answer."""
        request = dedup_pb2.AdmitRequest(
            namespace=NAMESPACE, request_id=str(uuid.uuid4()), events=events
        )
        while True:
            try:
                return await self.dedupd.Admit(request)
            except grpc.aio.AioRpcError as error:
                if error.code() not in CALL_AGAIN:
                    raise
                await asyncio.sleep(0.5)

    async def keep(self):
        """Renews claims and deliveries, most of which wait for the work on those before them."""
        while self.lease_s:
            await asyncio.sleep(self.lease_s / 3)
            held = list(self.held.values())
            if not held:
                continue
            asked = time.monotonic()
            request = dedup_pb2.RenewRequest(claims=[one.claim for one in held])
            try:
                answer = await self.dedupd.Renew(request)
            except grpc.aio.AioRpcError:
                continue  # The leases may hold until the next time.
            for one, outcome in zip(held, answer.outcomes, strict=True):
                if outcome == verdict_pb2.SETTLE_OUTCOME_APPLIED:
                    one.until = asked + self.lease_s
                    await one.message.in_progress()
                elif outcome == verdict_pb2.SETTLE_OUTCOME_NOT_HELD:
                    one.until = 0

    async def work(self, held):
        message, order = held.message, held.order
        await pick(order)
        if not held.is_ours():
            self.held.pop(held.claim, None)
            await message.nak()  # Too late: another may be at it. Ask again.
            return
        try:
            ship(self.out, order)
        except (OSError, KeyError, TypeError) as error:
            await self.failed(held, error)
            return
        await self.confirm(held)
        self.held.pop(held.claim, None)
        # Last of all: an acknowledgement that is lost only costs a copy, which dedupd keeps away.
        await message.ack()

    async def confirm(self, held):
        """Until it is confirmed or the lease is over: nothing else keeps its copies away."""
        if not held.claim:
            return  # Admitted without the store: there is nothing to settle.
        outcome = verdict_pb2.SETTLE_OUTCOME_STORE_UNAVAILABLE
        while outcome == verdict_pb2.SETTLE_OUTCOME_STORE_UNAVAILABLE and held.is_ours():
            try:
                request = dedup_pb2.ConfirmRequest(claims=[held.claim])
                outcome = (await self.dedupd.Confirm(request)).outcomes[0]
            except grpc.aio.AioRpcError:
                pass
            if outcome == verdict_pb2.SETTLE_OUTCOME_STORE_UNAVAILABLE:
                await asyncio.sleep(SETTLE_PAUSE_S)
        if outcome not in (
            verdict_pb2.SETTLE_OUTCOME_APPLIED,
            verdict_pb2.SETTLE_OUTCOME_ALREADY_APPLIED,
        ):
            name = verdict_pb2.SettleOutcome.Name(outcome)
            logging.warning("%s: %s: it may be shipped twice", held.order["id"], name)

    async def failed(self, held, error):
        order_id, why = held.order["id"], f"{type(error).__name__}: {error}"
        logging.warning("%s: %s", order_id, why)
        self.failures[order_id] += 1
        is_dead = self.failures[order_id] >= MAX_FAILURES
        if is_dead:
            await self.dead_letter(held.message, why)
            del self.failures[order_id]
        # After the dead letter is written: from now on a copy is admitted.
        self.held.pop(held.claim, None)
        await self.release(held.claim)
        await (held.message.ack() if is_dead else held.message.nak(delay=1))

    async def release(self, *claims):
        try:
            await self.dedupd.Release(dedup_pb2.ReleaseRequest(claims=claims))
        except grpc.aio.AioRpcError:
            pass  # The leases run out.

    async def dead_letter(self, message, why):
        headers = (message.headers or {}) | {"Dead-Letter-Reason": why}
        await self.jetstream.publish(self.dead_letters, message.data, headers=headers)


def read(message):
    """An order that cannot be read has no id, and dedupd says what to do with it."""
    try:
        order = json.loads(message.data)
        return order if isinstance(order.get("id"), str) else {}
    except (ValueError, AttributeError):
        return {}


def keyed(order):
    return event_pb2.Event(keyed=event_pb2.Keyed(event_id=order.get("id", "")))


async def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nats", default="nats://127.0.0.1:4222")
    parser.add_argument("--subject", default="orders", help="SUBJECT.dead is for dead letters")
    parser.add_argument("--ack-wait", type=float, default=30, help="seconds, as for the lease")
    parser.add_argument("--dedupd", default="127.0.0.1:50061", help="or unix:/path")
    parser.add_argument("--out", type=Path, default=Path(), help="a folder with the warehouses")
    options = parser.parse_args()

    stopped = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    async with (
        await nats.connect(options.nats, max_reconnect_attempts=-1) as connection,
        grpc.aio.insecure_channel(options.dedupd, options=CHANNEL_OPTIONS) as channel,
    ):
        jetstream = connection.jetstream()
        subjects = [options.subject, f"{options.subject}.dead"]
        await jetstream.add_stream(name=options.subject.upper(), subjects=subjects)
        # As often as it takes: a message that waits for dedupd is a delivery each time.
        config = ConsumerConfig(ack_wait=options.ack_wait, max_deliver=-1)
        orders = await jetstream.pull_subscribe(options.subject, "warehouse", config=config)
        dedupd = dedup_pb2_grpc.DedupServiceStub(channel)
        warehouse = Warehouse(dedupd, jetstream, options.subject, options.out, stopped)
        while not stopped.is_set():
            try:
                messages = await orders.fetch(MAX_BATCH, timeout=1)
            except TimeoutError:
                continue
            await warehouse.handle(messages)


if __name__ == "__main__":
    asyncio.run(main())
