package fleet;

import com.google.protobuf.ByteString;
import dedupd.v1.AdmitResponse;
import dedupd.v1.Verdict;
import java.util.List;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;

/** Renews the claims of a batch until they are settled: most of them wait for the work on those before them. */
final class Leases implements AutoCloseable {
    private final Set<ByteString> held = ConcurrentHashMap.newKeySet();
    private final ScheduledExecutorService clock = Executors.newSingleThreadScheduledExecutor();

    Leases(Dedup dedup, AdmitResponse response) {
        for (Verdict verdict : response.getVerdictsList()) {
            if (!verdict.getClaim().isEmpty()) {
                held.add(verdict.getClaim());
            }
        }
        long leaseMs = response.getLease().getSeconds() * 1000 + response.getLease().getNanos() / 1_000_000;
        if (leaseMs == 0) {
            return; // Without a lease there is nothing to renew.
        }
        Runnable renew =
                () -> {
                    List<ByteString> claims = List.copyOf(held);
                    if (!claims.isEmpty()) {
                        dedup.renew(claims);
                    }
                };
        clock.scheduleAtFixedRate(renew, leaseMs / 3, leaseMs / 3, TimeUnit.MILLISECONDS);
    }

    void settled(ByteString claim) {
        held.remove(claim);
    }

    @Override
    public void close() {
        clock.shutdownNow();
    }
}
