"""The Python example, on a subject of a real NATS JetStream."""

import asyncio
import sys

import nats

import servers
from warehouse import LEASE_S, Warehouse

PROGRAM = servers.ROOT / "examples/python/warehouse.py"


class NatsWarehouse(Warehouse):
    def with_jetstream(self, work):
        async def run():
            connection = await nats.connect(self.broker.url)
            try:
                return await work(connection.jetstream())
            finally:
                await connection.close()

        return asyncio.run(run())

    def spawn(self, name):
        arguments = ["--nats", self.broker.url, "--subject", self.topic, "--out", "."]
        arguments += ["--dedupd", self.dedupd.address, "--ack-wait", LEASE_S]
        env = {"PYTHONPATH": servers.STUBS.name, "PYTHONDONTWRITEBYTECODE": "1"}
        process = servers.Process(
            [sys.executable, PROGRAM, *arguments], self.directory, name, env
        )
        servers.wait_until(lambda: self.info() or not process.runs(), "it has subscribed")
        return process

    def send_texts(self, texts):
        async def publish(jetstream):
            for text in texts:
                await jetstream.publish(self.topic, text)

        self.with_jetstream(publish)

    def info(self):
        async def ask(jetstream):
            try:
                return await jetstream.consumer_info(self.topic.upper(), "warehouse")
            except nats.js.errors.NotFoundError:
                return None

        return self.with_jetstream(ask)

    def is_drained(self):
        info = self.info()
        return info.num_pending == info.num_ack_pending == 0

    def dead_letters(self, expected):
        async def read(jetstream):
            drain = await jetstream.pull_subscribe(f"{self.topic}.dead", "drain")
            letters = []
            while len(letters) < expected:
                letters += await drain.fetch(100, timeout=servers.TIMEOUT_S)
            return [(letter.data, letter.headers["Dead-Letter-Reason"]) for letter in letters]

        return self.with_jetstream(read)
