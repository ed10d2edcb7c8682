"""What the tests of consumers share, whatever the broker: orders, consumers, and what they ship."""

import json
import signal
import time
from collections import Counter
from itertools import count
from pathlib import Path

from servers import wait_until

LEASE_S = 5
# The first byte of a record that is confirmed.
CONFIRMED = 0x83


class Warehouse:
    """A topic, the consumers that a test starts on it, and what they have shipped.

    A broker's own class starts one consumer (`spawn`), sends texts, tells whether everything that
    was sent is acknowledged (`is_drained`), and reads dead letters with their reasons.
    """

    def __init__(self, topic, broker, dedupd, redis_server, directory):
        self.topic, self.broker, self.dedupd, self.redis = topic, broker, dedupd, redis_server
        self.directory = Path(directory)
        self.consumers = []
        self.numbers = count()
        self.before = dedupd.decisions("orders")
        (self.directory / "zurich").mkdir()

    def orders(self, how_many, **fields):
        """New ones, with ids of their own."""
        numbers = (next(self.numbers) for _ in range(how_many))
        return [{"id": f"{self.topic}-{n}", "warehouse": "zurich", **fields} for n in numbers]

    def send(self, orders):
        self.send_texts([o if isinstance(o, bytes) else json.dumps(o).encode() for o in orders])

    def start_consumer(self):
        self.consumers.append(self.spawn(f"consumer-{len(self.consumers)}"))
        return self.consumers[-1]

    def stop(self):
        for consumer in self.consumers:
            if consumer.runs():
                consumer.child.send_signal(signal.SIGCONT)
                assert consumer.stop() == 0, consumer.log()

    def wait_until(self, condition, what):
        def checked():
            for consumer in self.consumers:
                assert consumer.runs() or consumer.is_ended_by_us, consumer.log()
            return condition()

        wait_until(checked, what)

    def wait_drained(self):
        self.wait_until(self.is_drained, "all is acknowledged")

    def shipped(self, name="zurich"):
        file = self.directory / name / "shipped.txt"
        return Counter(file.read_text().split()) if file.exists() else Counter()

    def freeze_at_slow_work(self, consumer):
        """Some orders are shipped, each of them is confirmed, and for half a second no more are.

        A consumer that dies or is frozen for long between the effect and its confirmation has done
        it for nothing: no lease can help there, and no test of one may strike there.
        """
        seen = None

        def is_at_slow_work():
            nonlocal seen
            consumer.child.send_signal(signal.SIGSTOP)
            keys = [f"orders:{order_id}" for order_id in self.shipped()]
            records = self.redis.client.mget(keys) if keys else []
            confirmed = sum(record[0] == CONFIRMED for record in records if record)
            if 0 < len(keys) == confirmed == seen:
                return True
            consumer.child.send_signal(signal.SIGCONT)
            seen = confirmed
            time.sleep(0.5)
            return False

        self.wait_until(is_at_slow_work, "the slow order is being picked")

    def decided(self):
        """Decisions since the test began."""
        return self.dedupd.decisions("orders") - self.before
