package dedupd.conformance;

import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import com.google.protobuf.ByteString;
import com.google.protobuf.Timestamp;
import dedupd.v1.AdmitRequest;
import dedupd.v1.ConfirmRequest;
import dedupd.v1.Event;
import dedupd.v1.Keyed;
import dedupd.v1.LatLng;
import dedupd.v1.Ping;
import dedupd.v1.ProjectedPoint;
import dedupd.v1.ReleaseRequest;
import dedupd.v1.RenewRequest;
import dedupd.v1.StreamRequest;
import dedupd.v1.Transition;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;

/** From the script's JSON to messages. */
final class Messages {
    private Messages() {}

    static String text(JsonObject written, String name) {
        return written.has(name) ? written.get(name).getAsString() : "";
    }

    static int number(JsonObject written, String name, int otherwise) {
        return written.has(name) ? written.get(name).getAsInt() : otherwise;
    }

    static boolean flag(JsonObject written, String name) {
        return written.has(name) && written.get(name).getAsBoolean();
    }

    /** Unsigned numbers of 64 bits are negative longs in Java's stubs. */
    private static long unsigned(JsonObject written, String name) {
        return Long.parseUnsignedLong(text(written, name));
    }

    private static Timestamp timestamp(JsonObject written) {
        long seconds = Long.parseLong(text(written, "seconds"));
        return Timestamp.newBuilder().setSeconds(seconds).setNanos(number(written, "nanos", 0)).build();
    }

    static Event event(JsonObject written) {
        Event.Builder event = Event.newBuilder();
        if (written.has("transition")) {
            event.setTransition(transition(written.getAsJsonObject("transition")));
        }
        if (written.has("ping")) {
            event.setPing(ping(written.getAsJsonObject("ping")));
        }
        if (written.has("keyed")) {
            String id = text(written.getAsJsonObject("keyed"), "event_id");
            event.setKeyed(Keyed.newBuilder().setEventId(id));
        }
        if (written.has("occurred_at")) {
            event.setOccurredAt(timestamp(written.getAsJsonObject("occurred_at")));
        }
        if (written.has("text")) {
            event.setOccurredAtText(text(written, "text"));
        }
        if (written.has("unix_nanos")) {
            event.setOccurredAtUnixNanos(Long.parseLong(text(written, "unix_nanos")));
        }
        if (written.has("ingested_at")) {
            event.setIngestedAt(timestamp(written.getAsJsonObject("ingested_at")));
        }
        if (written.has("content_hash")) {
            event.setContentHash(unsigned(written, "content_hash"));
        }
        return event.build();
    }

    private static Transition transition(JsonObject written) {
        Transition.Builder transition =
                Transition.newBuilder()
                        .setDeviceId(text(written, "device_id"))
                        .setFenceId(text(written, "fence_id"))
                        .setKindValue(number(written, "kind", 0));
        if (written.has("sequence")) {
            transition.setSequence(unsigned(written, "sequence"));
        }
        if (written.has("sequence_epoch")) {
            transition.setSequenceEpoch(Integer.parseUnsignedInt(text(written, "sequence_epoch")));
        }
        return transition.build();
    }

    private static Ping ping(JsonObject written) {
        Ping.Builder ping = Ping.newBuilder().setAssetId(text(written, "asset_id"));
        if (written.has("lat_lng")) {
            JsonObject degrees = written.getAsJsonObject("lat_lng");
            LatLng.Builder position = LatLng.newBuilder();
            if (degrees.has("latitude")) {
                position.setLatitude(Double.parseDouble(text(degrees, "latitude")));
            }
            if (degrees.has("longitude")) {
                position.setLongitude(Double.parseDouble(text(degrees, "longitude")));
            }
            ping.setLatLng(position);
        }
        if (written.has("projected")) {
            JsonObject point = written.getAsJsonObject("projected");
            ProjectedPoint.Builder position = ProjectedPoint.newBuilder();
            if (point.has("x")) {
                position.setX(Double.parseDouble(text(point, "x")));
            }
            if (point.has("y")) {
                position.setY(Double.parseDouble(text(point, "y")));
            }
            if (point.has("epsg")) {
                position.setEpsg(Integer.parseUnsignedInt(text(point, "epsg")));
            }
            ping.setProjected(position);
        }
        return ping.build();
    }

    static AdmitRequest admit(JsonObject step) {
        List<Event> events = new ArrayList<>();
        for (JsonElement event : step.getAsJsonArray("events")) {
            events.add(event(event.getAsJsonObject()));
        }
        AdmitRequest.Builder request =
                AdmitRequest.newBuilder()
                        .setNamespace(text(step, "namespace"))
                        .setRequestId(text(step, "request_id"))
                        .setOmitClaims(flag(step, "omit_claims"));
        for (int time = 0; time < number(step, "repeat", 1); time++) {
            request.addAllEvents(events);
        }
        return request.build();
    }

    /** {@code tokens} are those of earlier steps by name. */
    static List<ByteString> claims(JsonObject step, Map<String, ByteString> tokens) {
        List<ByteString> claims = new ArrayList<>();
        for (JsonElement element : step.getAsJsonArray("claims")) {
            String name = element.getAsString();
            claims.add(
                    name.startsWith("hex:")
                            ? ByteString.copyFrom(HexFormat.of().parseHex(name.substring(4)))
                            : tokens.get(name));
        }
        return claims;
    }

    static StreamRequest streamRequest(JsonObject step, Map<String, ByteString> tokens) {
        StreamRequest.Builder request = StreamRequest.newBuilder().setBatchId(unsigned(step, "batch_id"));
        switch (text(step, "do")) {
            case "admit" -> request.setAdmit(admit(step));
            case "confirm" -> request.setConfirm(ConfirmRequest.newBuilder().addAllClaims(claims(step, tokens)));
            case "release" -> request.setRelease(ReleaseRequest.newBuilder().addAllClaims(claims(step, tokens)));
            case "renew" -> request.setRenew(RenewRequest.newBuilder().addAllClaims(claims(step, tokens)));
            default -> {}
        }
        return request.build();
    }
}
