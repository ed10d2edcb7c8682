"""Writes script.jsonl, the steps that a client in every language takes against a running dedupd.

    python3 tests/conformance/make_script.py > tests/conformance/script.jsonl

64-bit numbers and doubles are text, so that no JSON parser rounds them. README.md says what a step may hold.
"""

import itertools
import json

S = 1_000_000_000
T0 = 4_102_444_800 * S  # 2100-01-01T00:00:00Z, on the edge of a bucket of every width in use
ENTER, EXIT, DWELL = 1, 2, 3
ZURICH = (47.3769, 8.5417)

numbers = itertools.count(1)
lines = []


def fresh(kind="id"):
    return f"{kind}-{next(numbers)}"


def uuid(number):
    return f"00000000-0000-4000-8000-{number:012x}"


def step(do, **fields):
    """Writes a step and returns its number."""
    lines.append(json.dumps({"do": do, **fields}, ensure_ascii=False))
    return len(lines)


def crossing(device, nanos=T0, kind=ENTER, fence="gate", **more):
    sequence = {name: str(more.pop(name)) for name in ("sequence", "sequence_epoch") if name in more}
    identity = {"device_id": device, "fence_id": fence, "kind": kind, **sequence}
    return {"transition": identity} | ({"unix_nanos": str(nanos)} if nanos is not None else {}) | more


def ping(asset, nanos=T0, place=ZURICH, **more):
    position = {} if place is None else {"lat_lng": {"latitude": str(place[0]), "longitude": str(place[1])}}
    return {"ping": {"asset_id": asset, **position}, "unix_nanos": str(nanos)} | more


def partial(**position):
    return {"ping": {"asset_id": fresh("asset"), **position}, "unix_nanos": str(T0)}


def keyed(event_id, content_hash=None, **more):
    return {"keyed": {"event_id": event_id}} | ({"content_hash": str(content_hash)} if content_hash is not None else {}) | more


def admit(namespace, *events, **more):
    return step("admit", namespace=namespace, events=list(events), **more)


def claim(namespace, event, **more):
    """Admits an event and returns the name of its token."""
    return f"{admit(namespace, event, **more)}.0"


def settle(do, *names, **more):
    step(do, claims=list(names), **more)


def health_and_namespaces():
    for service in ("", "dedupd.v1.DedupService", "dedupd.v1.InspectService", "store", "nothing"):
        step("health", service=service)
    step("namespaces")


def settling():
    """Every row and column of the settle table."""
    for namespace in ("orders", "events"):  # pending, claimed
        for do in ("confirm", "release", "renew"):
            settle(do, claim(namespace, keyed(fresh())))
        for before in ("confirm", "release"):  # confirmed, absent
            for do in ("confirm", "release", "renew"):
                event = keyed(fresh())
                name = claim(namespace, event)
                settle(before, name)
                settle(do, name)
                if before == "confirm":
                    admit(namespace, event)
        for do in ("confirm", "release", "renew"):  # another's
            event = keyed(fresh())
            late = claim(namespace, event)
            settle("release", late)
            holder = claim(namespace, event)
            settle(do, late)
            settle("confirm", holder)
    one, two = (claim(namespace, keyed(fresh())) for namespace in ("orders", "events"))
    settle("confirm", one, two, one, "hex:", "hex:00ff", "hex:" + "ab" * 700)
    for do in ("confirm", "release", "renew"):
        settle(do, "hex:")
        settle(do)
    for do in ("renew", "confirm", "release"):  # a session's claim, a crossing's, a ping's
        settle(do, claim("sessions", crossing(fresh("device"))))
        settle(do, claim("sliding", crossing(fresh("device"))))
        settle(do, claim("pings", ping(fresh("asset"))))
    settle("confirm", claim("events", keyed("ü" * 256)))


def leases():
    """Of three claims one is confirmed in time, two run out."""
    events = [keyed(fresh()) for _ in range(3)]
    (done, done_claim), (gone, gone_claim), (again, again_claim) = [(event, claim("hasty", event)) for event in events]
    settle("confirm", done_claim)
    step("sleep", milliseconds=2500)
    admit("hasty", done)
    settle("confirm", gone_claim)
    settle("renew", gone_claim)
    settle("release", again_claim)
    for event in (gone, again):
        settle("confirm", claim("hasty", event))
        admit("hasty", event)


def windows():
    offsets = [0, 1, -1, S // 10, 2 * S // 10 - 1, 2 * S // 10, S - 1, S, S + 1, -S, 2 * S - 1, 2 * S, 2 * S + 1, -2 * S,
               10 * S, 10 * S + 1, 20 * S]
    for namespace in ("transitions", "tumbling", "sliding", "sessions"):
        for offset in offsets:
            device = fresh("device")
            admit(namespace, crossing(device), crossing(device, T0 + offset))
    for edge in (50_000_000, 99_999_999, 100_000_000):  # across the edge of a bucket
        device = fresh("device")
        for nanos in (T0 - edge, T0 + edge):
            admit("transitions", crossing(device, nanos))
    device = fresh("device")
    admit("transitions", *(crossing(device, kind=kind, fence=fence) for kind in (ENTER, EXIT, DWELL) for fence in ("a", "b")))
    for first, then in (("a|b", "a\\|b"), ("a\\", "a"), ("e\u0301", "\u00e9")):
        admit("transitions", crossing(first, fence="c"), crossing(then, fence="c"), crossing(first, fence="c"))
    admit("transitions", crossing("a", fence="b|c", kind=EXIT), crossing("a|b", fence="c", kind=EXIT))
    device = fresh("device")  # a session that goes on
    for offset in (0, 9, 18, 27, -9, 60):
        admit("sessions", crossing(device, T0 + offset * S), omit_claims=True)


def sequences():
    for numbers_ in ((0, 0, 1), (2**63 - 1, 2**63, 2**63 - 1), (2**64 - 1, 2**64 - 1, 0)):
        device = fresh("device")
        admit("transitions", *(crossing(device, T0 + at, sequence=number) for at, number in enumerate(numbers_)))
    device = fresh("device")
    for epoch in (0, 1, 2**31, 2**32 - 1, 1):
        admit("transitions", crossing(device, sequence=7, sequence_epoch=epoch), crossing(device))
    admit("transitions", crossing(fresh("device"), None, sequence=1))


def times():
    stamp = lambda seconds, nanos: {"occurred_at": {"seconds": str(seconds), "nanos": nanos}}
    text = lambda words: {"text": words}
    for time in (
        {}, stamp(1, -1), stamp(1, S), stamp(-1, 999_999_999), stamp(-(2**63), 0), stamp(2**63 - 1, 0), stamp(0, 0),
        stamp(4_102_444_800, 5), text("2100-01-01T00:00:00Z"), text("2100-01-01T01:00:00.000000001+01:00"),
        text("2100-01-01T00:00:00"), text("2100-02-30T00:00:00Z"), text("2100-01-01 00:00:00Z"), text("yesterday"), text(""),
        text("1500-01-01T00:00:00Z"), text("2300-01-01T00:00:00Z"), text("1969-12-31T23:59:59.5Z"),
        {"unix_nanos": "0"}, {"unix_nanos": "-1"}, {"unix_nanos": str(-(2**63))}, {"unix_nanos": str(2**63 - 1)},
    ):
        event = crossing(fresh("device"), None) | time
        admit("tumbling", event, event)
        step("explain", namespace="tumbling", event=event)
    ingested = {"ingested_at": {"seconds": "4102444800", "nanos": 0}}
    for namespace in ("timed", "clamped"):
        for off in (0, 300 * S, 300 * S + 1, -30 * 86_400 * S, -30 * 86_400 * S - 1, -1024 * 7 * 86_400 * S):
            admit(namespace, crossing(fresh("device"), T0 + off, **ingested))
    admit("clamped", crossing(fresh("device"), None, **ingested))
    # Older than the TTL by the service's own clock.
    device = fresh("device")
    admit("transitions", crossing(device, S), crossing(device, S), crossing(device, S + 1))


def identities():
    long = "x" * 512
    for device in ("", " ", "\u2003\t\u00a0", long, long + "x", "\u00fc" * 256, "\u00fc" * 257, "a\u0000b", "\U0001f69a", "a\nb"):
        admit("transitions", crossing(device, fence="identity"), crossing("good", kind=DWELL, fence="identity"))
    for kind in (0, 4, -1):
        admit("transitions", crossing(fresh("device"), kind=kind))
    admit("transitions", crossing(fresh("device"), fence=""), ping(fresh("asset")), keyed(fresh()), {}, {"unix_nanos": "1"})
    admit("pings", ping(""), crossing(fresh("device")), keyed(fresh()))
    admit("orders", keyed(""), keyed("\t"), keyed(long + "x"), crossing(fresh("device")), ping(fresh("asset")))
    admit("anywhere", keyed(fresh()), {})
    # Of several faults the first in the table is named.
    admit("timed", crossing("", None), crossing(long + "x", None, kind=9), crossing(fresh("device"), None, kind=9))


def places():
    north, east = ZURICH
    asset = fresh("asset")
    for nanos, place in ((0, ZURICH), (0, ZURICH), (S, ZURICH), (2 * S, (north + 1e-6, east)), (3 * S, (north + 0.00004, east)),
                         (4 * S, (north + 0.01, east)), (299 * S, ZURICH), (300 * S, ZURICH), (-1, ZURICH)):
        admit("pings", ping(asset, T0 + nanos, place))
    for place in ((90, 0), (-90, 180), (90.5, 0), (-90.000001, 0), (0, 180.5), ("NaN", 8), (47, "Infinity"), ("-Infinity", 8),
                  (0, 0), ("-0.0", "0.0"), (0, "1e-300"), (1e-300, "-0.0"), (47.4, -180), (47.4, 180), ("5e-324", "1.7976931348623157e308")):
        asset = fresh("asset")
        admit("pings", ping(asset, place=place), ping(asset, place=place))
    admit("pings", partial(), partial(lat_lng={}), partial(lat_lng={"latitude": "47"}), partial(lat_lng={"longitude": "8"}))
    for x, y, epsg in (("2683141", "1248117", 2056), ("8.54", "47.37", 4326), ("1", "2", 1), ("1", "2", 0), ("NaN", "2", 2056),
                       ("1e9", "1e9", 2056), ("0", "0", 3857), ("1", "2", 4267), ("1", "2", 4294967295)):
        event = partial(projected={"x": x, "y": y, "epsg": str(epsg)})
        admit("pings", event, event)
        step("explain", namespace="pings", event=event)
    admit("pings", partial(projected={"x": "2683141", "epsg": "2056"}), partial(projected={"epsg": "2056"}), partial(projected={}))
    for place in (ZURICH, (8.5417, 47.3769), (0, 0), (47.9, 10.6), (47.90001, 10.6)):
        admit("guarded", ping(fresh("asset"), place=place))
    asset = fresh("asset")
    for metres in range(0, 40, 2):  # northward, through cells whose edge is 9.4 m
        admit("guarded", ping(asset, T0 + metres, (round(north + metres / 111_195, 9), east)))
    asset = fresh("asset")
    for metres in (12, 14):  # across the border that the walk has shown
        admit("guarded", ping(asset, T0, (round(north + metres / 111_195, 9), east)))
    for seconds in (295, 305, 310, 315):
        asset = fresh("asset")
        admit("guarded", ping(asset, T0 + 299 * S), ping(asset, T0 + seconds * S))
    asset = fresh("asset")
    admit("anywhere", ping(asset, place=None), ping(asset, place=(99, 99)), ping(asset, T0 + S), crossing(asset), ping(asset, T0 + 300 * S))


def keyed_events():
    hashes = (None, 0, 1, 2**63, 2**64 - 1)
    for first, then in itertools.product(hashes, hashes):
        event_id = fresh()
        for namespace in ("orders", "events"):
            admit(namespace, keyed(event_id, first), omit_claims=True)
            admit(namespace, keyed(event_id, then))
            if namespace == "orders" and None not in (first, then) and first != then:
                step("explain", namespace=namespace, event=keyed(event_id, then))
    event_id = fresh()
    admit("orders", keyed(event_id), keyed(fresh()), keyed(event_id, 5), keyed(event_id))
    admit("events", keyed("foreign"), keyed("foreign", 1))
    admit("orders", keyed("foreign"))
    admit("orders", keyed(fresh(), occurred_at={"seconds": "-62135596801", "nanos": -5}, ingested_at={"seconds": "1", "nanos": -1}))
    for event_id in ("{a}", "a:b", "\u0000", " a", "a ", "\u00e9", "e\u0301", "\r\n", "%25", "\U0001f69a\U0001f69a"):
        admit("events", keyed(event_id), keyed(event_id), omit_claims=True)


def retries():
    """The same call again under its request id."""
    for number, (namespace, omit) in enumerate(itertools.product(("orders", "events"), (False, True))):
        event = keyed(fresh())
        for request_id in (uuid(number), uuid(number), uuid(100 + number), ""):
            admit(namespace, event, request_id=request_id, omit_claims=omit)
    event_id = fresh()
    for _ in range(2):
        admit("orders", keyed(event_id), keyed(fresh()), keyed(event_id), request_id=uuid(200))
    device = fresh("device")
    for request_id in (uuid(201), uuid(201), uuid(202)):
        admit("transitions", crossing(device), crossing(device, T0 + S), request_id=request_id)
    for request_id in ("message-17", "0", uuid(1)[:-1], uuid(203).replace("-", ""), uuid(204).upper(), "{" + uuid(205) + "}",
                       "urn:uuid:" + uuid(206), " " + uuid(207), "00000000-0000-0000-0000-000000000000", "\u00fc"):
        admit("events", keyed(fresh()), request_id=request_id)


def shadow():
    event_id = fresh()
    admit("watched", keyed(event_id), keyed(event_id), keyed(""))
    admit("watched", keyed(event_id, 1), keyed(event_id), crossing(event_id))
    step("explain", namespace="watched", event=keyed(event_id))


def operations(count):
    """Operations of one stream, on one device: to be sent without waiting."""
    device = fresh("device")
    return [{"batch_id": str(number), "do": "admit", "namespace": "transitions",
             "events": [crossing(device, T0 + number * S // 10)], "omit_claims": True} for number in range(count)]


def refused():
    yield {"do": "admit", "namespace": "nowhere", "events": [keyed("a")]}
    yield {"do": "admit", "namespace": "", "events": [keyed("a")]}
    yield {"do": "admit", "namespace": "mismatched", "events": [keyed("a")]}
    yield {"do": "admit", "namespace": "events", "events": []}
    yield {"do": "admit", "namespace": "events", "events": [keyed("a")], "request_id": "17"}
    yield {"do": "admit", "namespace": "events", "events": [keyed("a")], "repeat": 101}
    yield {"do": "admit", "namespace": "events", "events": [keyed("b" * 70)], "repeat": 60}
    for do in ("confirm", "release", "renew"):
        yield {"do": do, "claims": []}
        yield {"do": do, "claims": ["hex:00"] * 101}


def whole_requests():
    for operation in refused():
        step(**operation)
    step("stream", operations=[{"batch_id": str(number), **operation} for number, operation in enumerate(refused())]
         + [{"batch_id": "90", "do": "nothing"}, {"batch_id": "91", "do": "admit", "namespace": "events", "events": [keyed(fresh())]}])
    admit("events", keyed("c" * 400), repeat=30)
    step("stream", operations=[
        {"batch_id": "1", "do": "admit", "namespace": "events", "events": [keyed("before it")]},
        {"batch_id": "2", "do": "admit", "namespace": "events", "events": [keyed("c" * 400)], "repeat": 30}])
    admit("events", keyed("before it"), keyed("c" * 400))
    admit("events", keyed("most"), repeat=50, omit_claims=True)


def streams():
    step("stream", operations=[])
    for count in (1, 2, 50):
        step("stream", pipelined=True, operations=operations(count))
    for batch_id in (0, 2**63, 2**64 - 1):
        step("stream", operations=[{**operations(1)[0], "batch_id": str(batch_id)}])
    event, lost = keyed(fresh()), keyed(fresh())
    kept, released = (f"{len(lines) + 1}.0.{index}" for index in range(2))  # of the stream's first answer
    ask = lambda number, do, **fields: {"batch_id": str(number), "do": do, **fields}
    step("stream", operations=[
        ask(1, "admit", namespace="orders", events=[event, lost], request_id=uuid(300)),
        ask(2, "admit", namespace="orders", events=[event]),
        ask(3, "renew", claims=[kept, released, "hex:"]),
        ask(4, "confirm", claims=[kept]),
        ask(5, "release", claims=[released, kept]),
        ask(6, "admit", namespace="orders", events=[event, lost], omit_claims=True),
        ask(7, "admit", namespace="pings", events=[ping(fresh("asset")), ping("")]),
    ])
    event = keyed(fresh())
    for end in ({"timeout_milliseconds": 1000}, {"cancel": True}):
        step("stream", operations=[ask(1, "admit", namespace="events", events=[event], omit_claims=True)], **end)
        admit("events", event)
    step("watch", namespace="hasty", interval_milliseconds=100, looks=3)
    step("watch", namespace="hasty", interval_milliseconds=60_000, looks=1, timeout_milliseconds=500)
    step("watch", namespace="hasty", interval_milliseconds=99, looks=1)
    step("watch", namespace="nowhere", interval_milliseconds=100, looks=1)


def explanations():
    device = fresh("device")
    admit("transitions", crossing(device))
    for event in (crossing(device), crossing(device, T0 + 1), crossing(device, T0 - 1), crossing(device, T0 + 3 * S), crossing("")):
        step("explain", namespace="transitions", event=event)
    step("explain", namespace="nowhere", event=crossing(device))
    step("explain", namespace="transitions")
    asset, order = fresh("asset"), keyed(fresh())
    admit("guarded", ping(asset))
    step("explain", namespace="guarded", event=ping(asset, T0 + S, (47.37691, 8.5417)))
    name = claim("orders", order)
    step("explain", namespace="orders", event=order)
    step("forget", namespace="orders", event=order)
    return order, name


def forgetting(order, name):
    settle("confirm", name)
    for _ in range(2):
        step("forget", namespace="orders", event=order)
    admit("orders", order)
    step("forget", namespace="orders", event=keyed(""))
    step("forget", namespace="nowhere", event=order)
    step("forget", namespace="closed", event=order, through="away")
    step("explain", namespace="events", event=keyed("foreign"))
    step("forget", namespace="events", event=keyed("foreign"))
    admit("events", keyed("foreign"))


def elsewhere():
    """Through the Unix socket, and where the store is away."""
    event = keyed(fresh())
    admit("events", event, through="socket", omit_claims=True)
    admit("events", event)
    step("health", service="", through="socket")
    step("stream", pipelined=True, operations=operations(20), through="socket")
    step("admit", namespace="nowhere", events=[event], through="socket")
    admit("closed", event, keyed(""), through="away")
    admit("open", event, event, keyed(""), through="away")
    step("stream", operations=[{"batch_id": "1", "do": "admit", "namespace": "open", "events": [event]}], through="away")
    step("explain", namespace="closed", event=event, through="away")
    step("explain", namespace="open", event=event, through="away")
    step("namespaces", through="away")
    step("health", service="store", through="away")


def counters():
    for _ in range(30):
        admit("watched", keyed("noisy"))
    step("noisy", namespace="watched", limit=1)
    step("noisy", namespace="mismatched", limit=100)
    step("noisy", namespace="mismatched", limit=101)
    step("noisy", namespace="nowhere", limit=0)
    for namespace in ("closed", "open"):
        step("counters", namespace=namespace, through="away")
    step("counters", namespace="nowhere")
    step("counters", namespace="")


def main():
    health_and_namespaces()
    settling()
    leases()
    explained = explanations()
    windows()
    sequences()
    times()
    identities()
    places()
    keyed_events()
    shadow()
    whole_requests()
    forgetting(*explained)
    elsewhere()
    retries()
    streams()
    counters()
    print("\n".join(lines))


main()
