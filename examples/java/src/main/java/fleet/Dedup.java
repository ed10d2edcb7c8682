package fleet;

import com.google.protobuf.ByteString;
import dedupd.v1.AdmitRequest;
import dedupd.v1.AdmitResponse;
import dedupd.v1.ConfirmRequest;
import dedupd.v1.DedupServiceGrpc;
import dedupd.v1.DedupServiceGrpc.DedupServiceBlockingStub;
import dedupd.v1.Event;
import dedupd.v1.ReleaseRequest;
import dedupd.v1.RenewRequest;
import dedupd.v1.SettleOutcome;
import io.grpc.Grpc;
import io.grpc.InsecureChannelCredentials;
import io.grpc.ManagedChannel;
import io.grpc.StatusRuntimeException;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import java.util.concurrent.TimeUnit;

/** The client: deadline, retries, keepalive and reconnection in one place. */
final class Dedup implements AutoCloseable {
    /**
     * The timeout is for all attempts of a call together. Admit may be retried because every attempt carries the same
     * request id, settling because it says so if it was done before. Numbers in a service config are doubles.
     */
    private static final Map<String, ?> SERVICE_CONFIG =
            Map.of(
                    "methodConfig",
                    List.of(
                            Map.of(
                                    "name", List.of(Map.of("service", DedupServiceGrpc.SERVICE_NAME)),
                                    "timeout", "5s",
                                    "waitForReady", true,
                                    "retryPolicy",
                                            Map.of(
                                                    "maxAttempts", 5.0,
                                                    "initialBackoff", "0.05s",
                                                    "maxBackoff", "1s",
                                                    "backoffMultiplier", 2.0,
                                                    "retryableStatusCodes", List.of("UNAVAILABLE", "RESOURCE_EXHAUSTED")))));

    private final ManagedChannel channel;
    private final DedupServiceBlockingStub stub;
    private final String namespace;

    Dedup(String address, String namespace) {
        this.namespace = namespace;
        channel =
                Grpc.newChannelBuilder(address, InsecureChannelCredentials.create())
                        .defaultServiceConfig(SERVICE_CONFIG)
                        .keepAliveTime(10, TimeUnit.SECONDS)
                        .keepAliveTimeout(3, TimeUnit.SECONDS)
                        .keepAliveWithoutCalls(true)
                        .build();
        stub = DedupServiceGrpc.newBlockingStub(channel);
    }

    /** Asks about a batch, and again under the same request id until there is an answer. */
    AdmitResponse admit(List<Event> events) throws InterruptedException {
        AdmitRequest request =
                AdmitRequest.newBuilder()
                        .setNamespace(namespace)
                        .setRequestId(UUID.randomUUID().toString())
                        .addAllEvents(events)
                        .build();
        while (true) {
            try {
                return stub.admit(request);
            } catch (StatusRuntimeException failure) {
                switch (failure.getStatus().getCode()) {
                    case UNAVAILABLE, DEADLINE_EXCEEDED, RESOURCE_EXHAUSTED -> {
                        // Unless it is told to, the channel waits up to two minutes before it connects again.
                        channel.resetConnectBackoff();
                        Thread.sleep(500);
                    }
                    default -> throw failure; // wrong as a whole, such as a namespace that is not configured
                }
            }
        }
    }

    SettleOutcome confirm(ByteString claim) {
        try {
            return stub.confirm(ConfirmRequest.newBuilder().addClaims(claim).build()).getOutcomes(0);
        } catch (StatusRuntimeException failure) {
            return SettleOutcome.SETTLE_OUTCOME_STORE_UNAVAILABLE; // to be tried again, too
        }
    }

    /** Where this fails, the leases run out. */
    void release(ByteString claim) {
        try {
            stub.release(ReleaseRequest.newBuilder().addClaims(claim).build());
        } catch (StatusRuntimeException failure) {
            System.err.println("not released: " + failure.getStatus());
        }
    }

    /** Where this fails, the next renewal may succeed. */
    void renew(List<ByteString> claims) {
        try {
            stub.renew(RenewRequest.newBuilder().addAllClaims(claims).build());
        } catch (StatusRuntimeException failure) {
            System.err.println("not renewed: " + failure.getStatus());
        }
    }

    @Override
    public void close() {
        channel.shutdownNow();
    }
}
