"""Consumers as they were before dedupd: each looks in Redis by itself."""

import hashlib

import h3
import xxhash

BUCKET_NS = 2_000_000_000
GUARD_NS = 200_000_000
TRANSITION_TTL_S = 300
WINDOW_S = 300
PING_TTL_S = 6 * 3600 + 1800
EVENT_TTL_S = 48 * 3600


class OldTransitions:
    """One key for the crossing's bucket, and one for the neighbour across a near edge."""

    def __init__(self, client):
        self.client = client

    def keys(self, device, fence, kind, time_ns):
        bucket, offset = divmod(time_ns, BUCKET_NS)
        buckets = [bucket]
        if offset < GUARD_NS:
            buckets.append(bucket - 1)
        elif offset > BUCKET_NS - GUARD_NS:
            buckets.append(bucket + 1)
        materials = (f"{device}|{fence}|{kind}|{bucket}" for bucket in buckets)
        return [f"idem:{xxhash.xxh3_128_intdigest(text.encode())}" for text in materials]

    def admits(self, device, fence, kind, time_ns):
        with self.client.pipeline(transaction=True) as pipe:
            for key in self.keys(device, fence, kind, time_ns):
                pipe.set(key, b"1", nx=True, ex=TRANSITION_TTL_S)
            return all(pipe.execute())


class OldPings:
    """One key for asset, window and cell."""

    def __init__(self, client):
        self.client = client

    def admits(self, asset, time_s, latitude, longitude):
        start = time_s - time_s % WINDOW_S
        material = f"{asset}|{start}|{h3.latlng_to_cell(latitude, longitude, 12)}"
        key = "dedup:" + hashlib.blake2b(material.encode(), digest_size=16).hexdigest()
        return bool(self.client.set(key, b"1", nx=True, px=PING_TTL_S * 1000))


class OldEvents:
    """Looks first and writes later, whatever stands there by then."""

    def __init__(self, client):
        self.client = client

    def is_new(self, event_id):
        return self.client.get(f"dedup:{event_id}") is None

    def note(self, event_id):
        self.client.set(f"dedup:{event_id}", 1, ex=EVENT_TTL_S)

    def admits(self, event_id):
        if not self.is_new(event_id):
            return False
        self.note(event_id)
        return True
