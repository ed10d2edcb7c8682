// The store keys of an event, without dedupd: the contract of docs/keys.md.
// Reads vectors as JSON lines on standard input and prints the keys of each.

import { readFileSync } from "node:fs";

import { latLngToCell } from "h3-js";
import { createBLAKE2b, createXXHash128, createXXHash3 } from "hash-wasm";

export interface Namespace {
  prefix: string;
  layout: "plain" | "tagged";
  digest: "xxh3" | "blake2b";
  /** H3 resolution of pings whose position is part of the key. */
  resolution: number | null;
  /** Of a sliding window the guard is as wide as the window; of a session the width is its gap. */
  width_ns: string;
  guard_ns: string;
  session: boolean;
}

export interface Event {
  unix_nanos: string;
  transition?: { device_id: string; fence_id: string; kind: "ENTER" | "EXIT" | "DWELL"; sequence?: string; sequence_epoch?: string };
  ping?: { asset_id: string; latitude: string; longitude: string };
  keyed?: { event_id: string };
}

const LETTERS = { ENTER: "E", EXIT: "X", DWELL: "D" };
const SECOND = 1_000_000_000n;

/** What the digests need; WebAssembly is compiled once. */
export async function storeKeys() {
  const [xxh3, tag, blake2b] = await Promise.all([createXXHash128(), createXXHash3(), createBLAKE2b(128)]);

  const digest = (namespace: Namespace, material: string): string =>
    namespace.digest === "blake2b"
      ? blake2b.init().update(material).digest("hex")
      : BigInt("0x" + xxh3.init().update(material).digest("hex")).toString();

  function namesAndSubject(namespace: Namespace, event: Event): [string[], string] {
    if (event.keyed) return [[event.keyed.event_id], event.keyed.event_id];
    if (event.transition) {
      const { device_id, fence_id, kind, sequence, sequence_epoch = "0" } = event.transition;
      const crossing = `${escaped(device_id)}|${escaped(fence_id)}|${LETTERS[kind]}`;
      if (sequence !== undefined) {
        const numbered = `${crossing}|#${sequence_epoch === "0" ? "" : `${sequence_epoch}.`}${sequence}`;
        return [[digest(namespace, numbered)], numbered];
      }
      return [buckets(namespace, event).map((bucket) => digest(namespace, `${crossing}|${bucket}`)), crossing];
    }
    const { asset_id, latitude, longitude } = event.ping!;
    const asset = escaped(asset_id);
    const cell = namespace.resolution === null ? "-" : latLngToCell(Number(latitude), Number(longitude), namespace.resolution);
    const width_s = BigInt(namespace.width_ns) / SECOND;
    const materials = buckets(namespace, event).map((bucket) => `${asset}|${bucket * width_s}|${cell}`);
    return [materials.map((material) => digest(namespace, material)), asset];
  }

  /** The keys to look at, the primary first; what is written goes there. */
  return (namespace: Namespace, event: Event): string[] => {
    const [names, subject] = namesAndSubject(namespace, event);
    const group = namespace.layout === "tagged" ? `{${tag.init().update(subject).digest("hex")}}:` : "";
    return names.map((name) => namespace.prefix + group + name);
  };
}

/** The event's own, then those that a guard or a session reaches. */
function buckets(namespace: Namespace, event: Event): bigint[] {
  const [time, width, guard] = [event.unix_nanos, namespace.width_ns, namespace.guard_ns].map(BigInt) as [bigint, bigint, bigint];
  // BigInt division is toward zero; buckets are counted toward minus infinity.
  const offset = ((time % width) + width) % width;
  const bucket = (time - offset) / width;
  const before = namespace.session || offset + 1n < guard ? [bucket - 1n] : [];
  const after = namespace.session || width - offset < guard ? [bucket + 1n] : [];
  return [bucket, ...before, ...after];
}

function escaped(id: string): string {
  return id.replaceAll("\\", "\\\\").replaceAll("|", "\\|");
}

async function main(): Promise<void> {
  const keysOf = await storeKeys();
  for (const line of readFileSync(0, "utf8").trimEnd().split("\n")) {
    const { namespace, event } = JSON.parse(line) as { namespace: Namespace; event: Event };
    console.log(keysOf(namespace, event).join("\t"));
  }
}

void main();
