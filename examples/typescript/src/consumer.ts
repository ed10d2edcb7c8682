// Poll, Admit, work, Confirm, acknowledge.

import { Dedup, retryAfterMs } from "./dedup";
import type { Verdict__Output } from "./generated/dedupd/v1/Verdict";
import { Queue, type Delivery } from "./queue";
import { Files, type Message } from "./work";

const BATCH = 10;
/** After so many failures a message goes to the dead letters. */
const MAX_FAILURES = 3;

async function main([file, folder]: string[]): Promise<void> {
  const dedup = new Dedup(process.env.DEDUPD_ADDRESS ?? "127.0.0.1:50061", "webhooks");
  const queue = new Queue(file!);
  const files = new Files(folder!);

  /** Does what the verdict says. To return without `redeliver` is to acknowledge. */
  async function handle(delivery: Delivery, verdict: Verdict__Output): Promise<void> {
    switch (verdict.decision) {
      case "DECISION_ADMIT":
        return admitted(delivery, verdict.claim);
      case "DECISION_SUPPRESS":
        return;
      case "DECISION_DEAD_LETTER":
        return files.park(delivery.line);
      default: // RETRY, and what this program does not know yet
        return queue.redeliver(delivery, retryAfterMs(verdict));
    }
  }

  async function admitted(delivery: Delivery, claim: Buffer): Promise<void> {
    try {
      await files.work(delivery.line, delivery.failures);
    } catch {
      delivery.failures += 1;
      const isDead = delivery.failures >= MAX_FAILURES;
      if (isDead) files.park(delivery.line);
      // Behind the dead letter: from now on a copy is admitted.
      await dedup.release(claim);
      if (!isDead) queue.redeliver(delivery, 100);
      return;
    }
    await dedup.confirm(claim);
  }

  for (let batch = await queue.poll(BATCH); batch.length > 0; batch = await queue.poll(BATCH)) {
    const ids = batch.map(({ line }) => (JSON.parse(line) as Message).id ?? "");
    const response = await dedup.admit(ids.map((eventId) => ({ keyed: { eventId } })));
    const leases = dedup.keep(response);
    try {
      for (const [index, delivery] of batch.entries()) {
        const verdict = response.verdicts[index]!;
        await handle(delivery, verdict);
        leases.settled(verdict.claim);
      }
    } finally {
      leases.end();
    }
  }
  dedup.close();
}

void main(process.argv.slice(2));
