// A receiver of webhooks. Its senders deliver at least once and retry what is not answered 2xx.
//
// | verdict | answer | |
// | --- | --- | --- |
// | ADMIT | 200 | handled, then confirmed |
// | ADMIT, and the work fails | 500 | released: the sender's next try is admitted |
// | SUPPRESS | 200 | handled before |
// | RETRY, or no answer | 503 | with Retry-After |
// | DEAD_LETTER | 200 | parked: to send it again would not help |

import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { text } from "node:stream/consumers";

import { MicroBatcher } from "./batcher";
import { Dedup, retryAfterMs } from "./dedup";
import type { AdmitResponse__Output } from "./generated/dedupd/v1/AdmitResponse";
import { Files } from "./work";

/** Senders hang up after some ten seconds. */
const PATIENCE_MS = 2_000;

const [port, folder] = process.argv.slice(2);
const dedup = new Dedup(process.env.DEDUPD_ADDRESS ?? "127.0.0.1:50061", "webhooks");
/** Deliveries come one by one; those of a burst are asked about together. */
const batcher = new MicroBatcher(dedup, PATIENCE_MS);
const files = new Files(folder!);
/** What failed before, by id: only for the stand-in of the work. */
const failures = new Map<string, number>();

async function receive(request: IncomingMessage, response: ServerResponse): Promise<void> {
  const body = (await text(request)).trim();
  // The sender's own id of the delivery, the same at each of its tries.
  const id = String(request.headers["webhook-id"] ?? "");
  let answer: AdmitResponse__Output;
  try {
    answer = await batcher.admit({ keyed: { eventId: id } });
  } catch (error) {
    console.error(error);
    return reply(response, 503, { "retry-after": "1" });
  }
  const verdict = answer.verdicts[0]!;
  switch (verdict.decision) {
    case "DECISION_ADMIT": {
      const leases = dedup.keep(answer);
      try {
        await files.work(body, failures.get(id) ?? 0);
      } catch (error) {
        failures.set(id, (failures.get(id) ?? 0) + 1);
        await dedup.release(verdict.claim);
        return reply(response, 500);
      } finally {
        leases.end();
      }
      await dedup.confirm(verdict.claim);
      return reply(response, 200);
    }
    case "DECISION_SUPPRESS":
      return reply(response, 200);
    case "DECISION_DEAD_LETTER":
      files.park(body);
      return reply(response, 200);
    default: // RETRY, and what this program does not know yet
      return reply(response, 503, { "retry-after": String(Math.ceil(retryAfterMs(verdict) / 1000)) });
  }
}

function reply(response: ServerResponse, code: number, headers: Record<string, string> = {}): void {
  response.writeHead(code, headers).end();
}

const server = createServer((request, response) => {
  receive(request, response).catch((error: unknown) => {
    console.error(error);
    reply(response, 500);
  });
});
server.listen(Number(port), "127.0.0.1", () => console.log(`listening on ${(server.address() as AddressInfo).port}`));
