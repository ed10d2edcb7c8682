"""The Go example on Kafka and the Python one on NATS JetStream, in trouble.

An effect is a line in a file, and each order must have exactly one. What the tests show is in
docs/consumers.md.
"""

import os
import shutil
import signal
import time
from collections import Counter

import pytest

import servers
from warehouse import LEASE_S

HOUR_S = 3600
REDELIVERY = ("SUPPRESS", "REDELIVERY")
CONFIG = servers.orders_config(LEASE_S)


@pytest.fixture(scope="module")
def kafka(directory):
    broker = servers.Kafka(directory)
    yield broker
    broker.process.kill()


@pytest.fixture(scope="module")
def nats(directory):
    broker = servers.Nats(directory)
    yield broker
    broker.process.kill()


@pytest.fixture(params=["kafka", "nats"])
def warehouse(request, dedupd, redis_server, tmp_path):
    """tests/run.sh names what is left out."""
    if request.param == "kafka":
        if not {"DEDUPD_TEST_WAREHOUSE", "DEDUPD_TEST_KAFKA"} <= os.environ.keys():
            pytest.skip("no Kafka, or no Go")
        from on_kafka import KafkaWarehouse as kind
    else:
        if not shutil.which("nats-server"):
            pytest.skip("no nats-server")
        from on_nats import NatsWarehouse as kind
    broker = request.getfixturevalue(request.param)
    topic = request.function.__name__.removeprefix("test_") + "_" + request.param
    warehouse = kind(topic, broker, dedupd, redis_server, tmp_path)
    yield warehouse
    print(topic, dict(warehouse.decided()))
    warehouse.stop()


def once_each(orders):
    return Counter(order["id"] for order in orders)


def test_killed_in_mid_batch(warehouse):
    sent = [*warehouse.orders(30), *warehouse.orders(1, pick_ms=3000), *warehouse.orders(30)]
    first = warehouse.start_consumer()
    warehouse.send(sent + sent)
    warehouse.freeze_at_slow_work(first)
    first.kill()
    # What it held is pending for the rest of its lease; the broker gives it to the others.
    warehouse.start_consumer()
    warehouse.start_consumer()
    warehouse.wait_drained()
    assert warehouse.shipped() == once_each(sent)
    decided = warehouse.decided()
    assert decided[REDELIVERY] >= len(sent)
    assert decided["RETRY", "IN_FLIGHT"] > 0


def test_frozen_until_its_leases_are_gone(warehouse):
    sent = [*warehouse.orders(20), *warehouse.orders(1, pick_ms=3000), *warehouse.orders(20)]
    first = warehouse.start_consumer()
    warehouse.send(sent)
    warehouse.freeze_at_slow_work(first)
    warehouse.start_consumer()
    warehouse.wait_until(lambda: len(warehouse.shipped()) == len(sent), "the other ships the rest")
    # It wakes up in the middle of its batch, and must ship nothing of it.
    first.child.send_signal(signal.SIGCONT)
    time.sleep(2)
    warehouse.wait_drained()
    assert warehouse.shipped() == once_each(sent)


def test_consumers_come_and_go_while_copies_come(warehouse):
    sent = warehouse.orders(60, pick_ms=20)
    warehouse.start_consumer()
    warehouse.send(sent)
    second = warehouse.start_consumer()
    warehouse.send(sent)
    warehouse.wait_until(lambda: len(warehouse.shipped()) > 20, "a third is shipped")
    assert second.stop() == 0, second.log()
    warehouse.start_consumer()
    warehouse.wait_drained()
    assert warehouse.shipped() == once_each(sent)
    assert warehouse.decided()[REDELIVERY] >= len(sent)


def test_redis_away_meanwhile(warehouse):
    early, late = warehouse.orders(40, pick_ms=50), warehouse.orders(20)
    warehouse.start_consumer()
    warehouse.send(early + early)
    warehouse.wait_until(lambda: len(warehouse.shipped()) >= 10, "some are shipped")
    # Within its lease a confirmation can wait for Redis.
    warehouse.redis.kill()
    time.sleep(1)
    warehouse.redis.start()
    warehouse.wait_drained()
    assert warehouse.shipped() == once_each(early)
    # And nothing is admitted without it.
    warehouse.redis.kill()
    warehouse.send(late + late)
    unavailable = ("RETRY", "STORE_UNAVAILABLE")
    warehouse.wait_until(lambda: warehouse.decided()[unavailable] > len(late), "Redis is missed")
    assert warehouse.shipped() == once_each(early)
    warehouse.redis.start()
    warehouse.wait_drained()
    assert warehouse.shipped() == once_each(early + late)
    assert warehouse.decided()[REDELIVERY] >= len(early + late)


def test_dead_letters_drained_after_hours(warehouse):
    good, failing = warehouse.orders(10), warehouse.orders(10, warehouse="bern")
    warehouse.start_consumer()
    warehouse.send([*good, *failing, b"not an order"])
    warehouse.wait_drained()
    letters = warehouse.dead_letters(len(failing) + 1)
    assert sum("MISSING_IDENTITY" in why for _, why in letters) == 1
    assert sum("bern/shipped.txt" in why for _, why in letters) == len(failing) == len(letters) - 1

    (warehouse.directory / "bern").mkdir()
    warehouse.redis.let_time_pass(11.8 * HOUR_S)
    redriven = [text for text, _ in letters if text != b"not an order"]
    # All of it twice, and what was shipped as well.
    warehouse.send([*redriven, *redriven, *good])
    warehouse.wait_drained()
    assert warehouse.shipped("bern") == once_each(failing)
    assert warehouse.shipped() == once_each(good)
    assert warehouse.decided()[REDELIVERY] == len(failing + good)

    # Once the TTL is over, nothing tells a copy from a new order.
    warehouse.redis.let_time_pass(0.3 * HOUR_S)
    warehouse.send(good)
    warehouse.wait_drained()
    assert warehouse.shipped() == once_each(good + good)
