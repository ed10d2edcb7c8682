"""The store keys of an event, without dedupd: the contract of docs/keys.md.

Reads vectors as JSON lines on standard input and prints the keys of each.
"""

import hashlib
import json
import sys

import h3
import xxhash


def store_keys(namespace, event):
    """The keys to look at, the primary first; what is written goes there."""
    names, subject = names_and_subject(namespace, event)
    tag = f"{{{xxhash.xxh3_64_hexdigest(subject.encode())}}}:" if namespace["layout"] == "tagged" else ""
    return [namespace["prefix"] + tag + name for name in names]


def names_and_subject(namespace, event):
    if "keyed" in event:
        event_id = event["keyed"]["event_id"]
        return [event_id], event_id
    if "transition" in event:
        crossing = event["transition"]
        letter = {"ENTER": "E", "EXIT": "X", "DWELL": "D"}[crossing["kind"]]
        subject = f"{escaped(crossing['device_id'])}|{escaped(crossing['fence_id'])}|{letter}"
        if "sequence" in crossing:
            epoch = int(crossing.get("sequence_epoch", 0))
            subject += f"|#{epoch}.{crossing['sequence']}" if epoch else f"|#{crossing['sequence']}"
            return [digest(namespace, subject)], subject
        materials = [f"{subject}|{bucket}" for bucket in buckets(namespace, event)]
    else:
        ping = event["ping"]
        subject, cell = escaped(ping["asset_id"]), "-"
        if namespace["resolution"] is not None:
            cell = h3.latlng_to_cell(float(ping["latitude"]), float(ping["longitude"]), namespace["resolution"])
        width_s = int(namespace["width_ns"]) // 1_000_000_000
        materials = [f"{subject}|{bucket * width_s}|{cell}" for bucket in buckets(namespace, event)]
    return [digest(namespace, material) for material in materials], subject


def buckets(namespace, event):
    """The event's own, then those that a guard or a session reaches. Division is toward minus infinity."""
    width, guard = int(namespace["width_ns"]), int(namespace["guard_ns"])
    bucket, offset = divmod(int(event["unix_nanos"]), width)
    before = [bucket - 1] if namespace["session"] or offset + 1 < guard else []
    after = [bucket + 1] if namespace["session"] or width - offset < guard else []
    return [bucket, *before, *after]


def digest(namespace, material):
    if namespace["digest"] == "blake2b":
        return hashlib.blake2b(material.encode(), digest_size=16).hexdigest()
    return str(xxhash.xxh3_128_intdigest(material.encode()))


def escaped(identity):
    return identity.replace("\\", "\\\\").replace("|", "\\|")


if __name__ == "__main__":
    for line in sys.stdin:
        vector = json.loads(line)
        print(*store_keys(vector["namespace"], vector["event"]), sep="\t")
