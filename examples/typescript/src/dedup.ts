// The client: deadline, retries, keepalive and reconnection in one place.

import { randomUUID } from "node:crypto";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";

import { credentials, loadPackageDefinition, status, type ServiceError } from "@grpc/grpc-js";
import { loadSync } from "@grpc/proto-loader";

import type { ProtoGrpcType } from "./generated/dedup";
import type { AdmitRequest } from "./generated/dedupd/v1/AdmitRequest";
import type { AdmitResponse__Output } from "./generated/dedupd/v1/AdmitResponse";
import type { Event } from "./generated/dedupd/v1/Event";
import type { SettleOutcome__Output } from "./generated/dedupd/v1/SettleOutcome";

const definition = loadSync("dedupd/v1/dedup.proto", {
  includeDirs: [join(__dirname, "../../../proto")],
  longs: String,
  enums: String,
  defaults: true,
  arrays: true,
  oneofs: true,
});
const { DedupService } = (loadPackageDefinition(definition) as unknown as ProtoGrpcType).dedupd.v1;

// Admit may be retried because every attempt carries the same request id, settling because it says so if it was
// done before.
const SERVICE_CONFIG = {
  loadBalancingConfig: [],
  methodConfig: [
    {
      name: [{ service: "dedupd.v1.DedupService" }],
      waitForReady: true,
      retryPolicy: {
        maxAttempts: 5,
        initialBackoff: "0.05s",
        maxBackoff: "1s",
        backoffMultiplier: 2,
        retryableStatusCodes: ["UNAVAILABLE", "RESOURCE_EXHAUSTED"],
      },
    },
  ],
};

/** For all attempts of a call together. */
const DEADLINE_MS = 5_000;
/** How long to wait before a call is made once more after all its attempts have failed. */
const CALL_AGAIN_MS = 500;

type Callback<Response> = (error: ServiceError | null, response?: Response) => void;

function promise<Response>(call: (options: { deadline: number }, callback: Callback<Response>) => unknown): Promise<Response> {
  return new Promise((resolve, reject) => {
    const callback: Callback<Response> = (error, response) => (error ? reject(error) : resolve(response!));
    call({ deadline: Date.now() + DEADLINE_MS }, callback);
  });
}

export class Dedup {
  private readonly client: InstanceType<typeof DedupService>;

  constructor(address: string, private readonly namespace: string) {
    this.client = new DedupService(address, credentials.createInsecure(), {
      "grpc.service_config": JSON.stringify(SERVICE_CONFIG),
      "grpc.keepalive_time_ms": 10_000,
      "grpc.keepalive_timeout_ms": 3_000,
      "grpc.keepalive_permit_without_calls": 1,
      "grpc.initial_reconnect_backoff_ms": 100,
      "grpc.max_reconnect_backoff_ms": 2_000, // the default is two minutes
    });
  }

  /** Asks about a batch, and again under the same request id until there is an answer, or `patienceMs` is over. */
  async admit(events: Event[], patienceMs = Infinity): Promise<AdmitResponse__Output> {
    const request: AdmitRequest = { namespace: this.namespace, requestId: randomUUID(), events };
    const until = Date.now() + patienceMs;
    for (;;) {
      try {
        return await promise((options, callback) => this.client.admit(request, options, callback));
      } catch (error) {
        const { code } = error as ServiceError;
        const passing = code === status.UNAVAILABLE || code === status.DEADLINE_EXCEEDED || code === status.RESOURCE_EXHAUSTED;
        // Wrong as a whole, such as a namespace that is not configured; or too late.
        if (!passing || Date.now() >= until) throw error;
        await sleep(CALL_AGAIN_MS);
      }
    }
  }

  /** The work is done, and only this keeps its copies away: it is worth more than one try. */
  async confirm(claim: Buffer): Promise<void> {
    if (claim.length === 0) return; // admitted without the store: there is nothing to settle
    let outcome: SettleOutcome__Output | undefined;
    for (let attempt = 0; attempt < 10; attempt += 1) {
      outcome = await this.confirmOnce(claim);
      if (outcome !== "SETTLE_OUTCOME_STORE_UNAVAILABLE") break;
      await sleep(100);
    }
    if (outcome !== "SETTLE_OUTCOME_APPLIED" && outcome !== "SETTLE_OUTCOME_ALREADY_APPLIED") {
      console.error(`not confirmed, it may be done twice: ${outcome}`);
    }
  }

  private async confirmOnce(claim: Buffer): Promise<SettleOutcome__Output> {
    type Response = { outcomes: SettleOutcome__Output[] };
    const asked = promise<Response>((options, callback) => this.client.confirm({ claims: [claim] }, options, callback));
    return asked.then(({ outcomes }) => outcomes[0]!).catch(() => "SETTLE_OUTCOME_STORE_UNAVAILABLE");
  }

  /** Where this fails, the lease runs out. */
  async release(claim: Buffer): Promise<void> {
    if (claim.length === 0) return;
    await promise((options, callback) => this.client.release({ claims: [claim] }, options, callback)).catch(console.error);
  }

  /**
   * Renews the claims of a batch until they are settled or the returned function is called: most of them wait for
   * the work on those before them. Where a renewal fails, the next one may succeed.
   */
  keep(response: AdmitResponse__Output): { settled(claim: Buffer): void; end(): void } {
    const held = new Set(response.verdicts.map(({ claim }) => claim).filter((claim) => claim.length > 0));
    const leaseMs = Number(response.lease?.seconds ?? 0) * 1000 + (response.lease?.nanos ?? 0) / 1e6;
    const renew = () => {
      if (held.size === 0) return;
      promise((options, callback) => this.client.renew({ claims: [...held] }, options, callback)).catch(console.error);
    };
    // Without a lease there is nothing to renew.
    const timer = leaseMs > 0 ? setInterval(renew, leaseMs / 3) : undefined;
    return { settled: (claim) => void held.delete(claim), end: () => clearInterval(timer) };
  }

  close(): void {
    this.client.close();
  }
}

/** How long RETRY says to wait; a little, where it does not say. */
export function retryAfterMs(verdict: { retryAfter: { seconds: string; nanos: number } | null }): number {
  const { seconds, nanos } = verdict.retryAfter ?? { seconds: "0", nanos: 0 };
  return Math.max(100, Number(seconds) * 1000 + nanos / 1e6);
}
