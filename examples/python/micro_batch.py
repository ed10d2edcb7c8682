"""`await batcher.admit(event)` for code that handles one event at a time.

What a turn of the event loop asks for goes into one call, and what is asked while calls are on
their way goes into the next one: no timer, so that a lone event waits for nothing. A call for each
event costs more than the claim itself.
"""

import asyncio
import uuid

import grpc

from dedupd.v1 import dedup_pb2

CALL_AGAIN = {
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.DEADLINE_EXCEEDED,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
}


class MicroBatcher:
    """For one namespace and one event loop. `dedupd` is a DedupServiceStub on a grpc.aio channel.

    A caller that is cancelled before it has its verdict gives its claim back.
    """

    def __init__(self, dedupd, namespace, max_events=500, max_calls=2, timeout_s=5.0):
        self.dedupd, self.namespace = dedupd, namespace
        self.max_events, self.max_calls, self.timeout_s = max_events, max_calls, timeout_s
        self.waiting = []  # (event, future)
        self.calls = set()
        self.is_due = False

    async def admit(self, event):
        """Returns the event's Verdict. Raises the call's AioRpcError, as Admit does."""
        loop = asyncio.get_running_loop()
        verdict = loop.create_future()
        self.waiting.append((event, verdict))
        if not self.is_due and len(self.calls) < self.max_calls:
            self.is_due = True
            loop.call_soon(self._begin)
        return await verdict

    async def close(self):
        """Waits for what is on its way."""
        while self.calls or self.waiting:
            await asyncio.sleep(0)
            await asyncio.gather(*self.calls, return_exceptions=True)

    def _begin(self):
        self.is_due = False
        while self.waiting and len(self.calls) < self.max_calls:
            batch = self.waiting[: self.max_events]
            del self.waiting[: self.max_events]
            batch = [(event, verdict) for event, verdict in batch if not verdict.done()]
            if batch:
                call = asyncio.create_task(self._call(batch))
                self.calls.add(call)
                call.add_done_callback(self._ended)

    def _ended(self, call):
        self.calls.discard(call)
        self._begin()

    async def _call(self, batch):
        request = dedup_pb2.AdmitRequest(
            namespace=self.namespace,
            request_id=str(uuid.uuid4()),
            events=[event for event, _ in batch],
        )
        try:
            answer = await self._admit(request)
        except Exception as error:
            for _, verdict in batch:
                if not verdict.done():
                    verdict.set_exception(error)
            return
        abandoned = []
        for (_, waiting), verdict in zip(batch, answer.verdicts, strict=True):
            if not waiting.done():
                waiting.set_result(verdict)
            elif verdict.claim:
                abandoned.append(verdict.claim)
        if abandoned:
            try:
                await self.dedupd.Release(
                    dedup_pb2.ReleaseRequest(claims=abandoned), timeout=self.timeout_s
                )
            except grpc.aio.AioRpcError:
                pass  # The leases run out.

    async def _admit(self, request):
        """Twice under the same request id: the second attempt finds what the first one claimed."""
        try:
            return await self.dedupd.Admit(request, timeout=self.timeout_s)
        except grpc.aio.AioRpcError as error:
            if error.code() not in CALL_AGAIN:
                raise
        return await self.dedupd.Admit(request, timeout=self.timeout_s)
