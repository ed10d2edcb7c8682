// From the script's JSON to messages. The stubs take 64-bit numbers as text, as the script has them.

import type { AdmitRequest } from "./generated/dedupd/v1/AdmitRequest";
import type { Event } from "./generated/dedupd/v1/Event";
import type { Ping } from "./generated/dedupd/v1/Ping";
import type { TransitionKind } from "./generated/dedupd/v1/TransitionKind";
import type { StreamRequest } from "./generated/dedupd/v1/StreamRequest";

export interface Time {
  seconds: string;
  nanos: number;
}

type Doubles<Name extends string> = { [name in Name]?: string };

export interface WrittenEvent {
  transition?: { device_id: string; fence_id: string; kind: TransitionKind; sequence?: string; sequence_epoch?: string };
  ping?: { asset_id: string; lat_lng?: Doubles<"latitude" | "longitude">; projected?: Doubles<"x" | "y" | "epsg"> };
  keyed?: { event_id: string };
  occurred_at?: Time;
  text?: string;
  unix_nanos?: string;
  ingested_at?: Time;
  content_hash?: string;
}

export interface Step {
  do: string;
  through?: "socket" | "away";
  namespace?: string;
  request_id?: string;
  events?: WrittenEvent[];
  repeat?: number;
  omit_claims?: boolean;
  claims?: string[];
  operations?: Step[];
  batch_id?: string;
  pipelined?: boolean;
  cancel?: boolean;
  timeout_milliseconds?: number;
  interval_milliseconds?: number;
  milliseconds?: number;
  looks?: number;
  event?: WrittenEvent;
  limit?: number;
  service?: string;
}

/** Without the fields that are not set: the stubs send what is there, be it empty. */
function present<Fields extends object>(fields: Fields): Fields {
  return Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== undefined)) as Fields;
}

function double(written: string | undefined): number | undefined {
  return written === undefined ? undefined : Number(written);
}

function ping({ asset_id, lat_lng, projected }: NonNullable<WrittenEvent["ping"]>): Ping {
  return present({
    asset_id,
    lat_lng: lat_lng && present({ latitude: double(lat_lng.latitude), longitude: double(lat_lng.longitude) }),
    projected: projected && present({ x: double(projected.x), y: double(projected.y), epsg: double(projected.epsg) }),
  });
}

export function event(written: WrittenEvent): Event {
  const { transition } = written;
  return present({
    transition: transition && present({ ...transition, sequence_epoch: double(transition.sequence_epoch) }),
    ping: written.ping && ping(written.ping),
    keyed: written.keyed,
    occurred_at: written.occurred_at,
    occurred_at_text: written.text,
    occurred_at_unix_nanos: written.unix_nanos,
    ingested_at: written.ingested_at,
    content_hash: written.content_hash,
  });
}

export function admitRequest(step: Step): AdmitRequest {
  const events = (step.events ?? []).map(event);
  return present({
    namespace: step.namespace,
    request_id: step.request_id,
    events: Array<Event[]>(step.repeat ?? 1).fill(events).flat(),
    omit_claims: step.omit_claims,
  });
}

/** The tokens of earlier steps by name. */
export type Tokens = Map<string, Buffer>;

export function claims(step: Step, tokens: Tokens): Buffer[] {
  return (step.claims ?? []).map((name) =>
    name.startsWith("hex:") ? Buffer.from(name.slice(4), "hex") : tokens.get(name)!,
  );
}

export function streamRequest(step: Step, tokens: Tokens): StreamRequest {
  const { batch_id } = step;
  switch (step.do) {
    case "admit":
      return { batch_id, admit: admitRequest(step) };
    case "confirm":
      return { batch_id, confirm: { claims: claims(step, tokens) } };
    case "release":
      return { batch_id, release: { claims: claims(step, tokens) } };
    case "renew":
      return { batch_id, renew: { claims: claims(step, tokens) } };
    default:
      return { batch_id };
  }
}
