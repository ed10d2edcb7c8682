// Takes the steps of a script against a running dedupd and prints what was answered. See ../../README.md.

import { readFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";

import {
  credentials,
  loadPackageDefinition,
  type CallOptions,
  type ClientReadableStream,
  type ServiceError,
} from "@grpc/grpc-js";
import { loadSync } from "@grpc/proto-loader";
import { protoPath as healthProto } from "grpc-health-check";

import type { ProtoGrpcType as DedupTypes } from "./generated/dedup";
import type { ExplainResponse__Output } from "./generated/dedupd/v1/ExplainResponse";
import type { ForgetResponse__Output } from "./generated/dedupd/v1/ForgetResponse";
import type { GetCountersResponse__Output } from "./generated/dedupd/v1/GetCountersResponse";
import type { ListNamespacesResponse__Output } from "./generated/dedupd/v1/ListNamespacesResponse";
import type { ListNoisySubjectsResponse__Output } from "./generated/dedupd/v1/ListNoisySubjectsResponse";
import type { ProtoGrpcType as InspectTypes } from "./generated/inspect";
import { Lines } from "./lines";
import { admitRequest, claims, event, streamRequest, type Step } from "./messages";

const TIMEOUT_MS = 30_000;

const loaded = loadPackageDefinition(
  loadSync(["dedupd/v1/dedup.proto", "dedupd/v1/inspect.proto", healthProto], {
    includeDirs: [join(__dirname, "../../../../proto")],
    keepCase: true,
    longs: String,
    enums: String,
    defaults: true,
    arrays: true,
    oneofs: true,
  }),
);
const { DedupService, InspectService } = (loaded as unknown as DedupTypes & InspectTypes).dedupd.v1;
const { Health } = (loaded as any).grpc.health.v1;

function place(address: string) {
  const plain = credentials.createInsecure();
  return {
    dedup: new DedupService(address, plain),
    inspect: new InspectService(address, plain),
    health: new Health(address, plain),
  };
}

type Place = ReturnType<typeof place>;

function options(step: Step): CallOptions {
  return { deadline: Date.now() + (step.timeout_milliseconds ?? TIMEOUT_MS) };
}

type Unary<Request, Response> = (
  request: Request,
  options: CallOptions,
  callback: (error: ServiceError | null, response?: Response) => void,
) => unknown;

/** A unary call as a promise. */
function call<Request, Response>(client: object, method: Unary<Request, Response>, request: Request, step: Step): Promise<Response> {
  return new Promise((resolve, reject) => {
    method.call(client, request, options(step), (error, response) => (error ? reject(error) : resolve(response!)));
  });
}

/** The messages of a stream one by one; the end is `undefined`, an error throws. */
function reader<Message>(stream: ClientReadableStream<Message>): () => Promise<Message | undefined> {
  const messages = stream[Symbol.asyncIterator]();
  return async () => {
    const { done, value } = await messages.next();
    return done ? undefined : value;
  };
}

async function converse({ dedup }: Place, number: number, step: Step, lines: Lines): Promise<void> {
  const stream = dedup.Stream(options(step));
  const next = reader(stream);
  const operations = step.operations ?? [];
  if (step.pipelined) for (const operation of operations) stream.write(streamRequest(operation, lines.tokens));
  for (const [index, operation] of operations.entries()) {
    if (!step.pipelined) stream.write(streamRequest(operation, lines.tokens));
    const answer = (await next())!;
    lines.line(`batch ${answer.batch_id}`);
    switch (answer.result) {
      case "admit":
        lines.admitted(answer.admit!, `${number}.${index}`);
        break;
      case "confirm":
      case "release":
      case "renew":
        lines.settled(answer[answer.result]!);
        break;
      case "error":
        lines.error(answer.error!);
    }
  }
  if (step.cancel) stream.cancel();
  else if (step.timeout_milliseconds === undefined) stream.end();
  if ((await next()) !== undefined) throw new Error("an answer to nothing");
  lines.line("end");
}

async function watch({ inspect }: Place, step: Step, lines: Lines): Promise<void> {
  const nanos = step.interval_milliseconds! % 1000 * 1_000_000;
  const interval = { seconds: Math.floor(step.interval_milliseconds! / 1000), nanos };
  const stream = inspect.WatchCounters({ namespace: step.namespace, interval }, options(step));
  const next = reader(stream);
  for (let look = 0; look < step.looks!; look += 1) lines.counted((await next())!.counters);
  if (step.timeout_milliseconds === undefined) stream.cancel();
  await next();
}

async function take(place: Place, number: number, step: Step, lines: Lines): Promise<void> {
  const { dedup, inspect, health } = place;
  const ask = <Response>(method: Unary<object, Response>, request: object = subject) => call(inspect, method, request, step);
  const subject = { namespace: step.namespace, ...(step.event && { event: event(step.event) }) };
  switch (step.do) {
    case "admit":
      return lines.admitted(await call(dedup, dedup.Admit, admitRequest(step), step), String(number));
    case "confirm":
      return lines.settled(await call(dedup, dedup.Confirm, { claims: claims(step, lines.tokens) }, step));
    case "release":
      return lines.settled(await call(dedup, dedup.Release, { claims: claims(step, lines.tokens) }, step));
    case "renew":
      return lines.settled(await call(dedup, dedup.Renew, { claims: claims(step, lines.tokens) }, step));
    case "stream":
      return converse(place, number, step, lines);
    case "explain":
      return lines.explained(await ask<ExplainResponse__Output>(inspect.Explain));
    case "forget":
      return lines.line("forgotten", ...(await ask<ForgetResponse__Output>(inspect.Forget)).keys);
    case "counters":
      return lines.counted((await ask<GetCountersResponse__Output>(inspect.GetCounters)).counters);
    case "watch":
      return watch(place, step, lines);
    case "namespaces":
      return lines.namespaces(await ask<ListNamespacesResponse__Output>(inspect.ListNamespaces, {}));
    case "noisy": {
      const request = { ...subject, limit: step.limit };
      const { subjects } = await ask<ListNoisySubjectsResponse__Output>(inspect.ListNoisySubjects, request);
      return lines.line("noisy", ...subjects.map(({ id }) => id));
    }
    case "health": {
      const answer = await call<object, { status: string }>(health, health.Check, { service: step.service }, step);
      return lines.line(answer.status);
    }
    case "sleep":
      return sleep(step.milliseconds);
    default:
      throw new Error(step.do);
  }
}

async function main(): Promise<void> {
  const { DEDUPD_ADDRESS, DEDUPD_SOCKET, DEDUPD_AWAY } = process.env;
  const [here, socket, away] = [DEDUPD_ADDRESS!, `unix:${DEDUPD_SOCKET}`, DEDUPD_AWAY!].map(place) as [Place, Place, Place];
  const places = { socket, away };
  const lines = new Lines();
  const script = readFileSync(process.argv[2]!, "utf8").trimEnd().split("\n");
  for (const [index, written] of script.entries()) {
    const step: Step = JSON.parse(written);
    console.log([index + 1, step.do, step.namespace].filter(Boolean).join(" "));
    try {
      await take(step.through ? places[step.through] : here, index + 1, step, lines);
    } catch (error) {
      if (typeof (error as ServiceError).code !== "number") throw error;
      lines.refused(error as ServiceError);
    }
  }
  for (const { dedup, inspect, health } of [here, socket, away]) [dedup, inspect, health].forEach((client) => client.close());
}

void main();
