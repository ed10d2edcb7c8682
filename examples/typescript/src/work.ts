// Stands for the real work: writes the message to a file. Two of its fields make it fail or take long, to see what
// happens.

import { appendFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";

export interface Message {
  id?: string;
  fails?: number;
  takesMs?: number;
}

export class Files {
  constructor(private readonly folder: string) {}

  async work(line: string, failures: number): Promise<void> {
    const { fails = 0, takesMs = 0 } = JSON.parse(line) as Message;
    await sleep(takesMs);
    if (failures < fails) throw new Error("the work failed");
    appendFileSync(join(this.folder, "done.jsonl"), `${line}\n`);
  }

  /** The dead-letter path. */
  park(line: string): void {
    appendFileSync(join(this.folder, "dead.jsonl"), `${line}\n`);
  }
}
