package dedupd.conformance;

import com.google.protobuf.Any;
import com.google.protobuf.ByteString;
import com.google.protobuf.Duration;
import com.google.protobuf.InvalidProtocolBufferException;
import com.google.protobuf.Timestamp;
import com.google.rpc.BadRequest;
import com.google.rpc.ErrorInfo;
import dedupd.v1.AdmitResponse;
import dedupd.v1.Counter;
import dedupd.v1.ExplainResponse;
import dedupd.v1.FoundClaim;
import dedupd.v1.LatLng;
import dedupd.v1.ListNamespacesResponse;
import dedupd.v1.Namespace;
import dedupd.v1.OperationError;
import dedupd.v1.Reason;
import dedupd.v1.SettleOutcome;
import dedupd.v1.Verdict;
import io.grpc.Status;
import io.grpc.StatusException;
import io.grpc.protobuf.StatusProto;
import java.io.PrintStream;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.TreeMap;

/** From messages to lines. */
final class Lines {
    private final PrintStream out;
    final Map<String, ByteString> tokens = new HashMap<>();
    /** By token: where it was first seen. */
    private final Map<ByteString, String> names = new HashMap<>();

    Lines(PrintStream out) {
        this.out = out;
    }

    void line(String... words) {
        out.println("  " + String.join(" ", words));
    }

    private static String without(String prefix, Enum<?> name) {
        return name.name().substring(prefix.length());
    }

    private static String seconds(Duration span) {
        return String.format(Locale.ROOT, "%d.%09d", span.getSeconds(), span.getNanos());
    }

    private static String seconds(Timestamp at) {
        return String.format(Locale.ROOT, "%d.%09d", at.getSeconds(), at.getNanos());
    }

    private static String degrees(LatLng position) {
        return String.format(Locale.ROOT, "%.5f,%.5f", position.getLatitude(), position.getLongitude());
    }

    private String name(ByteString token, String verdict) {
        tokens.put(verdict, token);
        names.putIfAbsent(token, verdict);
        return names.get(token);
    }

    private void verdict(Verdict verdict, String name) {
        List<String> words = new ArrayList<>();
        words.add(without("DECISION_", verdict.getDecision()));
        words.add(without("REASON_", verdict.getReason()));
        if (!verdict.getClaim().isEmpty()) {
            words.add("claim=" + name(verdict.getClaim(), name));
        }
        if (verdict.hasRetryAfter()) {
            // When the breaker probes next depends on when it was asked.
            boolean outage = verdict.getReason() == Reason.REASON_STORE_UNAVAILABLE;
            words.add("retry_after=" + (outage ? "soon" : seconds(verdict.getRetryAfter())));
        }
        if (verdict.hasFirstOccurredAt()) {
            words.add("first_occurred_at=" + seconds(verdict.getFirstOccurredAt()));
        }
        if (verdict.getDegraded()) {
            words.add("degraded");
        }
        if (verdict.getShadow()) {
            words.add("shadow");
        }
        if (verdict.getTimeClamped()) {
            words.add("time_clamped");
        }
        if (verdict.hasCopyOfIndex()) {
            words.add("copy_of_index=" + verdict.getCopyOfIndex());
        }
        if (!verdict.getDetail().isEmpty()) {
            words.add("detail=" + verdict.getDetail());
        }
        line(words.toArray(String[]::new));
    }

    void admitted(AdmitResponse answer, String name) {
        for (int index = 0; index < answer.getVerdictsCount(); index++) {
            verdict(answer.getVerdicts(index), name + "." + index);
        }
        if (answer.hasLease()) {
            line("lease=" + seconds(answer.getLease()));
        }
    }

    void settled(List<SettleOutcome> outcomes) {
        line(outcomes.stream().map(outcome -> without("SETTLE_OUTCOME_", outcome)).toArray(String[]::new));
    }

    private void reason(String reason, Map<String, String> metadata) {
        List<String> words = new ArrayList<>(List.of("!", reason));
        new TreeMap<>(metadata).forEach((key, value) -> words.add(key + "=" + value));
        line(words.toArray(String[]::new));
    }

    void error(OperationError error) {
        String retry = error.hasRetryAfter() ? " retry_after=" + seconds(error.getRetryAfter()) : "";
        line("!", Integer.toString(error.getCode()), error.getMessage() + retry);
        reason(error.getReason(), error.getMetadataMap());
        if (!error.getField().isEmpty()) {
            line("! field", error.getField());
        }
    }

    void refused(StatusException refusal) throws InvalidProtocolBufferException {
        Status.Code code = refusal.getStatus().getCode();
        // Whether the client or the service says these first is a matter of microseconds.
        if (code == Status.Code.CANCELLED || code == Status.Code.DEADLINE_EXCEEDED) {
            line("!", code.name());
            return;
        }
        line("!", code.name(), refusal.getStatus().getDescription());
        for (Any detail : StatusProto.fromThrowable(refusal).getDetailsList()) {
            if (detail.is(ErrorInfo.class)) {
                ErrorInfo info = detail.unpack(ErrorInfo.class);
                reason(info.getDomain() + " " + info.getReason(), info.getMetadataMap());
            } else if (detail.is(BadRequest.class)) {
                for (BadRequest.FieldViolation violation : detail.unpack(BadRequest.class).getFieldViolationsList()) {
                    line("! field", violation.getField() + ":", violation.getDescription());
                }
            }
        }
    }

    void explained(ExplainResponse answer) {
        verdict(answer.getVerdict(), "none");
        answer.getKeysList().forEach(key -> line("key=" + key));
        line("material=" + answer.getMaterial());
        line("contract=" + answer.getContract());
        if (answer.hasOccurredAt()) {
            line("occurred_at=" + seconds(answer.getOccurredAt()));
        }
        if (answer.hasPosition()) {
            line("position=" + degrees(answer.getPosition()), "cell=" + answer.getCell());
        }
        for (FoundClaim claim : answer.getClaimsList()) {
            List<String> words = new ArrayList<>();
            words.add("claim=" + without("CLAIM_STATE_", claim.getState()));
            words.add("key=" + claim.getKey());
            if (claim.hasOccurredAt()) {
                words.add("occurred_at=" + seconds(claim.getOccurredAt()));
            }
            if (claim.hasPosition()) {
                words.add("position=" + degrees(claim.getPosition()));
            }
            if (claim.getNear()) {
                words.add("near");
            }
            line(words.toArray(String[]::new));
        }
    }

    /** Those that are not zero. */
    void counted(List<Counter> counters) {
        for (Counter counter : counters) {
            if (counter.getEvents() != 0) {
                line(
                        counter.getNamespace(),
                        without("DECISION_", counter.getDecision()),
                        without("REASON_", counter.getReason()),
                        Long.toUnsignedString(counter.getEvents()));
            }
        }
    }

    void namespaces(ListNamespacesResponse answer) {
        for (Namespace namespace : answer.getNamespacesList()) {
            String ttl = "ttl=" + seconds(namespace.getTtl());
            String lease = "lease=" + seconds(namespace.getLease());
            line(namespace.getName(), ttl, lease, namespace.getFailureMode(), namespace.getMode());
            line("  contract=" + namespace.getContract());
            if (!namespace.getRefused().isEmpty()) {
                line("  refused=" + namespace.getRefused());
            }
        }
    }
}
