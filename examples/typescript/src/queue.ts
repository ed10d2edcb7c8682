// Stands for a broker: the lines of a file, each delivered until it is acknowledged. It remembers nothing from one
// run to the next, so a new run is the redelivery of everything.

import { readFileSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";

export interface Delivery {
  readonly line: string;
  failures: number;
  dueMs: number;
}

export class Queue {
  private waiting: Delivery[];

  constructor(file: string) {
    const lines = readFileSync(file, "utf8").split("\n").filter(Boolean);
    this.waiting = lines.map((line) => ({ line, failures: 0, dueMs: 0 }));
  }

  /** Up to `most` deliveries that are due; waits for the first. None: the queue is empty. */
  async poll(most: number): Promise<Delivery[]> {
    const first = Math.min(...this.waiting.map(({ dueMs }) => dueMs));
    if (this.waiting.length > 0) await sleep(Math.max(0, first - Date.now()));
    const due = this.waiting.filter(({ dueMs }) => dueMs <= Math.max(first, Date.now())).slice(0, most);
    this.waiting = this.waiting.filter((delivery) => !due.includes(delivery));
    return due;
  }

  /** Not acknowledged: it comes again. */
  redeliver(delivery: Delivery, afterMs: number): void {
    delivery.dueMs = Date.now() + afterMs;
    this.waiting.push(delivery);
  }
}
