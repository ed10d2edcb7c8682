// The rich details of an error. No package brings google.rpc's messages for this client; they are few.

import type { ServiceError } from "@grpc/grpc-js";
import { parse } from "protobufjs";

const { root } = parse(`
  syntax = "proto3";
  package google.rpc;
  message Any { string type_url = 1; bytes value = 2; }
  message Status { int32 code = 1; string message = 2; repeated Any details = 3; }
  message ErrorInfo { string reason = 1; string domain = 2; map<string, string> metadata = 3; }
  message BadRequest {
    message FieldViolation { string field = 1; string description = 2; }
    repeated FieldViolation field_violations = 1;
  }
`, { keepCase: true });

export interface Details {
  info?: { reason: string; domain: string; metadata: Record<string, string> };
  violations: { field: string; description: string }[];
}

function decode<Message>(name: string, bytes: Uint8Array): Message {
  const type = root.lookupType(`google.rpc.${name}`);
  return type.toObject(type.decode(bytes), { defaults: true }) as Message;
}

export function details(error: ServiceError): Details {
  const found: Details = { violations: [] };
  const [encoded] = error.metadata.get("grpc-status-details-bin");
  if (!Buffer.isBuffer(encoded)) return found;
  const status = decode<{ details: { type_url: string; value: Uint8Array }[] }>("Status", encoded);
  for (const { type_url, value } of status.details) {
    if (type_url.endsWith("/google.rpc.ErrorInfo")) found.info = decode("ErrorInfo", value);
    if (type_url.endsWith("/google.rpc.BadRequest")) {
      found.violations = decode<{ field_violations: Details["violations"] }>("BadRequest", value).field_violations;
    }
  }
  return found;
}
