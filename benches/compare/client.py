"""A Python consumer of dedupd: batches of 500 on one stream, four in flight. Arguments: target,
warm-up and duration in seconds. Prints one JSON object."""

import asyncio
import json
import os
import sys
import tempfile
import time
from pathlib import Path

import grpc
import grpc_tools
from grpc_tools import protoc

BATCH, IN_FLIGHT = 500, 4


def import_stubs(out):
    proto = Path(__file__).parents[2] / "proto"
    well_known = Path(grpc_tools.__file__).parent / "_proto"
    files = [str(path) for path in sorted((proto / "dedupd/v1").glob("*.proto"))]
    arguments = [f"-I{proto}", f"-I{well_known}", f"--python_out={out}", f"--grpc_python_out={out}"]
    assert protoc.main(["protoc", *arguments, *files]) == 0
    sys.path.insert(0, out)
    from dedupd.v1 import dedup_pb2, dedup_pb2_grpc

    return dedup_pb2, dedup_pb2_grpc


async def main(out, target, warm_up_s, duration_s):
    dedup, services = import_stubs(out)
    run = f"{os.getpid()}-{time.time_ns()}"
    # Over a Unix socket gRPC's C core would send the path as the authority.
    options = [("grpc.default_authority", "localhost")]
    async with grpc.aio.insecure_channel(target, options=options) as channel:
        stream = services.DedupServiceStub(channel).Stream()
        sent = 0

        async def send():
            nonlocal sent
            request = dedup.StreamRequest()
            request.admit.namespace = "events"
            # A third of what it takes to make messages first and to copy them into the request.
            add = request.admit.events.add
            for number in range(sent, sent + BATCH):
                add().keyed.event_id = f"{run}-{number}"
            await stream.write(request)
            sent += BATCH

        async def receive():
            answer = await stream.read()
            assert len(answer.admit.verdicts) == BATCH, answer
            assert all(verdict.decision == 1 for verdict in answer.admit.verdicts)

        for _ in range(IN_FLIGHT):
            await send()
        begun, events, cpu, measured = time.monotonic(), 0, 0.0, False
        while True:
            await receive()
            await send()
            now = time.monotonic()
            if not measured and now >= begun + float(warm_up_s):
                begun, cpu, events, measured = now, time.process_time(), 0, True
            elif measured:
                events += BATCH
                if now >= begun + float(duration_s):
                    break
        took, cpu = now - begun, time.process_time() - cpu
        stream.cancel()
    print(json.dumps({"events_per_s": events / took, "cpu_per_event_ns": cpu * 1e9 / events}))


with tempfile.TemporaryDirectory() as out:
    asyncio.run(main(out, *sys.argv[1:]))
