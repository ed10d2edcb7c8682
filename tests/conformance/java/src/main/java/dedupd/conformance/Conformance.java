package dedupd.conformance;

import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import com.google.protobuf.Duration;
import dedupd.v1.ConfirmRequest;
import dedupd.v1.DedupServiceGrpc;
import dedupd.v1.Event;
import dedupd.v1.ExplainRequest;
import dedupd.v1.ForgetRequest;
import dedupd.v1.GetCountersRequest;
import dedupd.v1.InspectServiceGrpc;
import dedupd.v1.ListNamespacesRequest;
import dedupd.v1.ListNoisySubjectsRequest;
import dedupd.v1.NoisySubject;
import dedupd.v1.ReleaseRequest;
import dedupd.v1.RenewRequest;
import dedupd.v1.StreamRequest;
import dedupd.v1.StreamResponse;
import dedupd.v1.WatchCountersRequest;
import dedupd.v1.WatchCountersResponse;
import io.grpc.Grpc;
import io.grpc.InsecureChannelCredentials;
import io.grpc.ManagedChannel;
import io.grpc.StatusException;
import io.grpc.health.v1.HealthCheckRequest;
import io.grpc.health.v1.HealthGrpc;
import io.grpc.stub.BlockingClientCall;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import java.util.stream.Stream;

/** Takes the steps of a script against a running dedupd and prints what was answered. See ../../README.md. */
public final class Conformance {
    private static final int TIMEOUT_MS = 30_000;

    private final Lines lines;
    private final ManagedChannel channel;

    private Conformance(Lines lines, String target) {
        this.lines = lines;
        // A socket's path is no authority.
        channel =
                Grpc.newChannelBuilder(target, InsecureChannelCredentials.create())
                        .overrideAuthority("localhost")
                        .build();
    }

    public static void main(String[] arguments) throws Exception {
        Map<String, String> environment = System.getenv();
        PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        Lines lines = new Lines(out);
        Map<String, Conformance> places =
                Map.of(
                        "", new Conformance(lines, environment.get("DEDUPD_ADDRESS")),
                        "socket", new Conformance(lines, "unix:" + environment.get("DEDUPD_SOCKET")),
                        "away", new Conformance(lines, environment.get("DEDUPD_AWAY")));
        int number = 0;
        for (String written : Files.readAllLines(Path.of(arguments[0]))) {
            number++;
            JsonObject step = JsonParser.parseString(written).getAsJsonObject();
            String head = number + " " + Messages.text(step, "do") + " " + Messages.text(step, "namespace");
            out.println(head.strip());
            try {
                places.get(Messages.text(step, "through")).take(Integer.toString(number), step);
            } catch (StatusException refusal) {
                lines.refused(refusal);
            }
        }
        out.flush();
        for (Conformance place : places.values()) {
            place.channel.shutdownNow();
        }
    }

    private static int timeoutMs(JsonObject step) {
        return Messages.number(step, "timeout_milliseconds", TIMEOUT_MS);
    }

    private DedupServiceGrpc.DedupServiceBlockingV2Stub dedup(JsonObject step) {
        return DedupServiceGrpc.newBlockingV2Stub(channel).withDeadlineAfter(timeoutMs(step), TimeUnit.MILLISECONDS);
    }

    private InspectServiceGrpc.InspectServiceBlockingV2Stub inspect(JsonObject step) {
        return InspectServiceGrpc.newBlockingV2Stub(channel).withDeadlineAfter(timeoutMs(step), TimeUnit.MILLISECONDS);
    }

    private void take(String number, JsonObject step) throws StatusException, InterruptedException {
        switch (Messages.text(step, "do")) {
            case "admit" -> lines.admitted(dedup(step).admit(Messages.admit(step)), number);
            case "confirm" -> {
                ConfirmRequest.Builder request = ConfirmRequest.newBuilder();
                request.addAllClaims(Messages.claims(step, lines.tokens));
                lines.settled(dedup(step).confirm(request.build()).getOutcomesList());
            }
            case "release" -> {
                ReleaseRequest.Builder request = ReleaseRequest.newBuilder();
                request.addAllClaims(Messages.claims(step, lines.tokens));
                lines.settled(dedup(step).release(request.build()).getOutcomesList());
            }
            case "renew" -> {
                RenewRequest.Builder request = RenewRequest.newBuilder();
                request.addAllClaims(Messages.claims(step, lines.tokens));
                lines.settled(dedup(step).renew(request.build()).getOutcomesList());
            }
            case "stream" -> converse(number, step);
            case "watch" -> watch(step);
            case "health" -> {
                String service = Messages.text(step, "service");
                HealthCheckRequest request = HealthCheckRequest.newBuilder().setService(service).build();
                lines.line(HealthGrpc.newBlockingV2Stub(channel).check(request).getStatus().name());
            }
            case "sleep" -> Thread.sleep(Messages.number(step, "milliseconds", 0));
            default -> look(step);
        }
    }

    private void look(JsonObject step) throws StatusException {
        String namespace = Messages.text(step, "namespace");
        Event event = step.has("event") ? Messages.event(step.getAsJsonObject("event")) : null;
        switch (Messages.text(step, "do")) {
            case "explain" -> {
                ExplainRequest.Builder request = ExplainRequest.newBuilder().setNamespace(namespace);
                if (event != null) {
                    request.setEvent(event);
                }
                lines.explained(inspect(step).explain(request.build()));
            }
            case "forget" -> {
                ForgetRequest.Builder request = ForgetRequest.newBuilder().setNamespace(namespace).setEvent(event);
                List<String> keys = inspect(step).forget(request.build()).getKeysList();
                lines.line(Stream.concat(Stream.of("forgotten"), keys.stream()).toArray(String[]::new));
            }
            case "counters" -> {
                GetCountersRequest request = GetCountersRequest.newBuilder().setNamespace(namespace).build();
                lines.counted(inspect(step).getCounters(request).getCountersList());
            }
            case "namespaces" ->
                    lines.namespaces(inspect(step).listNamespaces(ListNamespacesRequest.getDefaultInstance()));
            case "noisy" -> {
                ListNoisySubjectsRequest.Builder request = ListNoisySubjectsRequest.newBuilder();
                request.setNamespace(namespace).setLimit(Messages.number(step, "limit", 0));
                List<NoisySubject> subjects = inspect(step).listNoisySubjects(request.build()).getSubjectsList();
                Stream<String> ids = subjects.stream().map(NoisySubject::getId);
                lines.line(Stream.concat(Stream.of("noisy"), ids).toArray(String[]::new));
            }
            default -> throw new IllegalArgumentException(step.toString());
        }
    }

    private void converse(String number, JsonObject step) throws StatusException, InterruptedException {
        BlockingClientCall<StreamRequest, StreamResponse> call = dedup(step).stream();
        List<JsonObject> operations =
                step.getAsJsonArray("operations").asList().stream().map(written -> written.getAsJsonObject()).toList();
        boolean pipelined = Messages.flag(step, "pipelined");
        if (pipelined) {
            for (JsonObject operation : operations) {
                call.write(Messages.streamRequest(operation, lines.tokens));
            }
        }
        for (int index = 0; index < operations.size(); index++) {
            if (!pipelined) {
                call.write(Messages.streamRequest(operations.get(index), lines.tokens));
            }
            answer(call.read(), number + "." + index);
        }
        if (Messages.flag(step, "cancel")) {
            call.cancel("enough", null);
        } else if (!step.has("timeout_milliseconds")) {
            call.halfClose();
        }
        if (call.read() != null) {
            throw new IllegalStateException("an answer to nothing");
        }
        lines.line("end");
    }

    private void answer(StreamResponse answer, String name) {
        lines.line("batch", Long.toUnsignedString(answer.getBatchId()));
        switch (answer.getResultCase()) {
            case ADMIT -> lines.admitted(answer.getAdmit(), name);
            case CONFIRM -> lines.settled(answer.getConfirm().getOutcomesList());
            case RELEASE -> lines.settled(answer.getRelease().getOutcomesList());
            case RENEW -> lines.settled(answer.getRenew().getOutcomesList());
            case ERROR -> lines.error(answer.getError());
            case RESULT_NOT_SET -> throw new IllegalStateException(answer.toString());
        }
    }

    private void watch(JsonObject step) throws StatusException, InterruptedException {
        int milliseconds = Messages.number(step, "interval_milliseconds", 0);
        Duration.Builder interval = Duration.newBuilder().setSeconds(milliseconds / 1000);
        interval.setNanos(milliseconds % 1000 * 1_000_000);
        WatchCountersRequest.Builder request = WatchCountersRequest.newBuilder().setInterval(interval);
        request.setNamespace(Messages.text(step, "namespace"));
        BlockingClientCall<?, WatchCountersResponse> call = inspect(step).watchCounters(request.build());
        for (int look = 0; look < Messages.number(step, "looks", 0); look++) {
            lines.counted(call.read().getCountersList());
        }
        if (!step.has("timeout_milliseconds")) {
            call.cancel("enough", null);
        }
        call.read();
    }
}
