// `await batcher.admit(event)` for code that handles one event at a time. What a turn of the event loop asks for goes
// into one call, and what is asked while calls are on their way goes into the next one: no timer, so that a lone event
// waits for nothing. A call for each event costs more than the claim itself.

import { Dedup } from "./dedup";
import type { AdmitResponse__Output } from "./generated/dedupd/v1/AdmitResponse";
import type { Event } from "./generated/dedupd/v1/Event";

interface Waiting {
  event: Event;
  resolve(answer: AdmitResponse__Output): void;
  reject(error: unknown): void;
}

export class MicroBatcher {
  private waiting: Waiting[] = [];
  private calls = 0;
  private isDue = false;

  constructor(
    private readonly dedup: Dedup,
    private readonly patienceMs = Infinity,
    private readonly maxEvents = 500,
    private readonly maxCalls = 2,
  ) {}

  /** The answer to a call with this one event. */
  admit(event: Event): Promise<AdmitResponse__Output> {
    return new Promise((resolve, reject) => {
      this.waiting.push({ event, resolve, reject });
      if (this.isDue || this.calls >= this.maxCalls) return;
      this.isDue = true;
      setImmediate(() => {
        this.isDue = false;
        this.begin();
      });
    });
  }

  private begin(): void {
    while (this.waiting.length > 0 && this.calls < this.maxCalls) {
      const batch = this.waiting.splice(0, this.maxEvents);
      this.calls += 1;
      void this.call(batch).finally(() => {
        this.calls -= 1;
        this.begin();
      });
    }
  }

  private async call(batch: Waiting[]): Promise<void> {
    try {
      const answer = await this.dedup.admit(batch.map(({ event }) => event), this.patienceMs);
      batch.forEach(({ resolve }, index) => resolve({ ...answer, verdicts: [answer.verdicts[index]!] }));
    } catch (error) {
      for (const { reject } of batch) reject(error);
    }
  }
}
