// From messages to lines.

import { status, type ServiceError } from "@grpc/grpc-js";

import { details } from "./details";
import type { AdmitResponse__Output } from "./generated/dedupd/v1/AdmitResponse";
import type { Counter__Output } from "./generated/dedupd/v1/Counter";
import type { ExplainResponse__Output } from "./generated/dedupd/v1/ExplainResponse";
import type { LatLng__Output } from "./generated/dedupd/v1/LatLng";
import type { ListNamespacesResponse__Output } from "./generated/dedupd/v1/ListNamespacesResponse";
import type { OperationError__Output } from "./generated/dedupd/v1/OperationError";
import type { SettleOutcome__Output } from "./generated/dedupd/v1/SettleOutcome";
import type { Verdict__Output } from "./generated/dedupd/v1/Verdict";
import type { Tokens } from "./messages";

interface Span {
  seconds: string | number;
  nanos: number;
}

function seconds(span: Span | null | undefined): string {
  return `${span?.seconds ?? 0}.${String(span?.nanos ?? 0).padStart(9, "0")}`;
}

function degrees(position: LatLng__Output): string {
  return `${position.latitude!.toFixed(5)},${position.longitude!.toFixed(5)}`;
}

export class Lines {
  readonly tokens: Tokens = new Map();
  /** By the token's bytes: where it was first seen. */
  private readonly names = new Map<string, string>();

  line(...words: (string | number)[]): void {
    process.stdout.write(`  ${words.join(" ")}\n`);
  }

  private name(token: Buffer, verdict: string): string {
    const bytes = token.toString("hex");
    this.tokens.set(verdict, token);
    if (!this.names.has(bytes)) this.names.set(bytes, verdict);
    return this.names.get(bytes)!;
  }

  private verdict(verdict: Verdict__Output, name: string): void {
    const words = [verdict.decision.replace("DECISION_", ""), verdict.reason.replace("REASON_", "")];
    if (verdict.claim.length > 0) words.push(`claim=${this.name(verdict.claim, name)}`);
    if (verdict.retry_after) {
      // When the breaker probes next depends on when it was asked.
      const outage = verdict.reason === "REASON_STORE_UNAVAILABLE";
      words.push(`retry_after=${outage ? "soon" : seconds(verdict.retry_after)}`);
    }
    if (verdict.first_occurred_at) words.push(`first_occurred_at=${seconds(verdict.first_occurred_at)}`);
    for (const flag of ["degraded", "shadow", "time_clamped"] as const) if (verdict[flag]) words.push(flag);
    // Proto3 optional: the oneof that the loader makes of it says whether it is set.
    if (verdict._copy_of_index) words.push(`copy_of_index=${verdict.copy_of_index}`);
    if (verdict.detail) words.push(`detail=${verdict.detail}`);
    this.line(...words);
  }

  admitted(answer: AdmitResponse__Output, name: string): void {
    answer.verdicts.forEach((verdict, index) => this.verdict(verdict, `${name}.${index}`));
    if (answer.lease) this.line(`lease=${seconds(answer.lease)}`);
  }

  settled({ outcomes }: { outcomes: SettleOutcome__Output[] }): void {
    this.line(...outcomes.map((outcome) => outcome.replace("SETTLE_OUTCOME_", "")));
  }

  private reason(reason: string, metadata: Record<string, string>): void {
    const pairs = Object.entries(metadata).map(([key, value]) => `${key}=${value}`);
    this.line("!", reason, ...pairs.sort());
  }

  error(error: OperationError__Output): void {
    this.line("!", error.code, error.message, ...(error.retry_after ? [`retry_after=${seconds(error.retry_after)}`] : []));
    this.reason(error.reason, error.metadata);
    if (error.field) this.line(`! field ${error.field}`);
  }

  refused(error: ServiceError): void {
    // Whether the client or the service says these first is a matter of microseconds.
    if (error.code === status.CANCELLED || error.code === status.DEADLINE_EXCEEDED) {
      return this.line("!", status[error.code]!);
    }
    this.line("!", status[error.code]!, error.details);
    const { info, violations } = details(error);
    if (info) this.reason(`${info.domain} ${info.reason}`, info.metadata);
    for (const { field, description } of violations) this.line(`! field ${field}: ${description}`);
  }

  explained(answer: ExplainResponse__Output): void {
    this.verdict(answer.verdict!, "none");
    for (const key of answer.keys) this.line(`key=${key}`);
    this.line(`material=${answer.material}`);
    this.line(`contract=${answer.contract}`);
    if (answer.occurred_at) this.line(`occurred_at=${seconds(answer.occurred_at)}`);
    if (answer.position) this.line(`position=${degrees(answer.position)}`, `cell=${answer.cell}`);
    for (const claim of answer.claims) {
      const words = [`claim=${claim.state.replace("CLAIM_STATE_", "")}`, `key=${claim.key}`];
      if (claim.occurred_at) words.push(`occurred_at=${seconds(claim.occurred_at)}`);
      if (claim.position) words.push(`position=${degrees(claim.position)}`);
      if (claim.near) words.push("near");
      this.line(...words);
    }
  }

  /** Those that are not zero. */
  counted(counters: Counter__Output[]): void {
    for (const { namespace, decision, reason, events } of counters) {
      if (events !== "0") {
        this.line(namespace, decision.replace("DECISION_", ""), reason.replace("REASON_", ""), events);
      }
    }
  }

  namespaces(answer: ListNamespacesResponse__Output): void {
    for (const namespace of answer.namespaces) {
      const spans = [`ttl=${seconds(namespace.ttl)}`, `lease=${seconds(namespace.lease)}`];
      this.line(namespace.name, ...spans, namespace.failure_mode, namespace.mode);
      this.line(`  contract=${namespace.contract}`);
      if (namespace.refused) this.line(`  refused=${namespace.refused}`);
    }
  }
}
