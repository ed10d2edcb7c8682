package dedupd.conformance;

import com.dynatrace.hash4j.hashing.HashValue128;
import com.dynatrace.hash4j.hashing.Hashing;
import com.google.gson.Gson;
import com.google.gson.annotations.SerializedName;
import com.uber.h3core.H3Core;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.math.BigInteger;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import org.bouncycastle.crypto.digests.Blake2bDigest;

/**
 * The store keys of an event, without dedupd: the contract of docs/keys.md.
 *
 * <p>The program reads vectors as JSON lines on standard input and prints the keys of each.
 */
public final class Keys {
    private static final long SECOND = 1_000_000_000L;

    /** What a namespace's configuration says of keys. */
    public static final class Namespace {
        String prefix;
        String layout; // plain or tagged
        String digest; // xxh3 or blake2b
        Integer resolution; // H3, for pings whose position is part of the key
        @SerializedName("width_ns") long widthNs; // of a session its gap
        @SerializedName("guard_ns") long guardNs; // of a sliding window as wide as the window
        boolean session;
    }

    /** One of the three kinds. */
    public static final class Event {
        @SerializedName("unix_nanos") long unixNanos;
        Transition transition;
        Ping ping;
        Keyed keyed;
    }

    static final class Transition {
        @SerializedName("device_id") String deviceId;
        @SerializedName("fence_id") String fenceId;
        String kind; // ENTER, EXIT or DWELL
        String sequence; // unsigned, or null
        @SerializedName("sequence_epoch") String epoch = "0";
    }

    static final class Ping {
        @SerializedName("asset_id") String assetId;
        double latitude;
        double longitude;
    }

    static final class Keyed {
        @SerializedName("event_id") String eventId;
    }

    private final H3Core h3;

    public Keys() throws IOException {
        h3 = H3Core.newInstance();
    }

    /** The keys to look at, the primary first; what is written goes there. */
    public List<String> storeKeys(Namespace namespace, Event event) {
        String subject = subject(event);
        String prefix = namespace.prefix;
        if (namespace.layout.equals("tagged")) {
            long tag = Hashing.xxh3_64().hashBytesToLong(utf8(subject));
            prefix += "{" + HexFormat.of().toHexDigits(tag) + "}:";
        }
        if (event.keyed != null) {
            return List.of(prefix + subject);
        }
        List<String> keys = new ArrayList<>();
        for (String material : materials(namespace, event, subject)) {
            keys.add(prefix + digest(namespace, utf8(material)));
        }
        return keys;
    }

    private static String subject(Event event) {
        if (event.keyed != null) {
            return event.keyed.eventId;
        }
        if (event.ping != null) {
            return escaped(event.ping.assetId);
        }
        Transition crossing = event.transition;
        String letter =
                switch (crossing.kind) {
                    case "ENTER" -> "E";
                    case "EXIT" -> "X";
                    case "DWELL" -> "D";
                    default -> throw new IllegalArgumentException(crossing.kind);
                };
        String subject = escaped(crossing.deviceId) + "|" + escaped(crossing.fenceId) + "|" + letter;
        if (crossing.sequence == null) {
            return subject;
        }
        return subject + "|#" + (crossing.epoch.equals("0") ? "" : crossing.epoch + ".") + crossing.sequence;
    }

    private List<String> materials(Namespace namespace, Event event, String subject) {
        if (event.transition != null && event.transition.sequence != null) {
            return List.of(subject);
        }
        List<String> materials = new ArrayList<>();
        for (long bucket : buckets(namespace, event)) {
            if (event.transition != null) {
                materials.add(subject + "|" + bucket);
            } else {
                Ping ping = event.ping;
                String cell =
                        namespace.resolution == null
                                ? "-"
                                : h3.latLngToCellAddress(ping.latitude, ping.longitude, namespace.resolution);
                materials.add(subject + "|" + bucket * (namespace.widthNs / SECOND) + "|" + cell);
            }
        }
        return materials;
    }

    /** The event's own, then those that a guard or a session reaches. */
    private static List<Long> buckets(Namespace namespace, Event event) {
        // floorDiv, not /: buckets are counted toward minus infinity.
        long bucket = Math.floorDiv(event.unixNanos, namespace.widthNs);
        long offset = Math.floorMod(event.unixNanos, namespace.widthNs);
        List<Long> buckets = new ArrayList<>(List.of(bucket));
        if (namespace.session || offset + 1 < namespace.guardNs) {
            buckets.add(bucket - 1);
        }
        if (namespace.session || namespace.widthNs - offset < namespace.guardNs) {
            buckets.add(bucket + 1);
        }
        return buckets;
    }

    private static String digest(Namespace namespace, byte[] material) {
        if (namespace.digest.equals("blake2b")) {
            Blake2bDigest blake2b = new Blake2bDigest(128);
            blake2b.update(material, 0, material.length);
            byte[] digest = new byte[16];
            blake2b.doFinal(digest, 0);
            return HexFormat.of().formatHex(digest);
        }
        HashValue128 hash = Hashing.xxh3_128().hashBytesTo128Bits(material);
        ByteBuffer bytes = ByteBuffer.allocate(16);
        bytes.putLong(hash.getMostSignificantBits()).putLong(hash.getLeastSignificantBits());
        return new BigInteger(1, bytes.array()).toString();
    }

    private static String escaped(String id) {
        return id.replace("\\", "\\\\").replace("|", "\\|");
    }

    private static byte[] utf8(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    private record Vector(Namespace namespace, Event event) {}

    public static void main(String[] arguments) throws IOException {
        Keys keys = new Keys();
        Gson gson = new Gson();
        PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            Vector vector = gson.fromJson(line, Vector.class);
            out.println(String.join("\t", keys.storeKeys(vector.namespace(), vector.event())));
        }
        out.flush();
    }
}
