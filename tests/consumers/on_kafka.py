"""The Go example, on a topic of a real Kafka broker."""

import os
import time

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

import servers
from warehouse import Warehouse

PROGRAM = os.environ.get("DEDUPD_TEST_WAREHOUSE")
PARTITIONS = 3


class KafkaWarehouse(Warehouse):
    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.client = {"bootstrap.servers": self.broker.address}
        self.producer = Producer(self.client)
        admin = AdminClient(self.client)
        topics = [NewTopic(self.topic, PARTITIONS, 1), NewTopic(f"{self.topic}.dead", 1, 1)]
        for created in admin.create_topics(topics).values():
            created.result()

    def spawn(self, name):
        arguments = ["-brokers", self.broker.address, "-topic", self.topic, "-group", self.topic]
        arguments += ["-dedupd", self.dedupd.address, "-session", "2s", "-out", "."]
        return servers.Process([PROGRAM, *arguments], self.directory, name)

    def send_texts(self, texts):
        """Copies need not meet in one partition."""
        for place, text in enumerate(texts):
            self.producer.produce(self.topic, text, partition=place % PARTITIONS)
        assert self.producer.flush(30) == 0

    def is_drained(self):
        reader = Consumer(self.client | {"group.id": self.topic})
        partitions = [TopicPartition(self.topic, number) for number in range(PARTITIONS)]
        committed = reader.committed(partitions, timeout=10)
        ends = [reader.get_watermark_offsets(partition, timeout=10)[1] for partition in partitions]
        reader.close()
        return all(part.offset == end for part, end in zip(committed, ends, strict=True) if end)

    def dead_letters(self, expected):
        reader = Consumer(
            self.client | {"group.id": f"{self.topic}.drain", "auto.offset.reset": "earliest"}
        )
        reader.subscribe([f"{self.topic}.dead"])
        letters = []
        deadline = time.monotonic() + servers.TIMEOUT_S
        while len(letters) < expected and time.monotonic() < deadline:
            letter = reader.poll(0.5)
            if letter and not letter.error():
                reason = dict(letter.headers())["dead-letter-reason"].decode()
                letters.append((letter.value(), reason))
        reader.close()
        return letters
