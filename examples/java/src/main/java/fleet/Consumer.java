package fleet;

import com.google.protobuf.ByteString;
import com.google.protobuf.Duration;
import dedupd.v1.AdmitResponse;
import dedupd.v1.SettleOutcome;
import dedupd.v1.Verdict;
import fleet.Queue.Delivery;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.List;

/** Poll, Admit, work, Confirm, acknowledge. */
public final class Consumer {
    private static final int BATCH = 10;
    /** After so many failures a crossing goes to the dead letters. */
    private static final int MAX_FAILURES = 3;

    private final Dedup dedup;
    private final Queue queue;
    private final Path done;
    private final Path dead;

    private Consumer(Dedup dedup, Queue queue, Path out) {
        this.dedup = dedup;
        this.queue = queue;
        done = out.resolve("done.jsonl");
        dead = out.resolve("dead.jsonl");
    }

    public static void main(String[] arguments) throws Exception {
        String address = System.getenv().getOrDefault("DEDUPD_ADDRESS", "127.0.0.1:50061");
        try (Dedup dedup = new Dedup(address, "crossings")) {
            new Consumer(dedup, new Queue(Path.of(arguments[0])), Path.of(arguments[1])).run();
        }
    }

    private void run() throws IOException, InterruptedException {
        for (List<Delivery> batch = queue.poll(BATCH); !batch.isEmpty(); batch = queue.poll(BATCH)) {
            AdmitResponse response =
                    dedup.admit(batch.stream().map(delivery -> Crossing.parse(delivery.line).event()).toList());
            try (Leases leases = new Leases(dedup, response)) {
                for (int index = 0; index < batch.size(); index++) {
                    handle(batch.get(index), response.getVerdicts(index), leases);
                }
            }
        }
    }

    /** Does what the verdict says. Returning without {@code redeliver} acknowledges. */
    private void handle(Delivery delivery, Verdict verdict, Leases leases) throws IOException, InterruptedException {
        switch (verdict.getDecision()) {
            case DECISION_ADMIT -> admitted(delivery, verdict.getClaim(), leases);
            case DECISION_SUPPRESS -> {}
            case DECISION_DEAD_LETTER -> append(dead, delivery.line);
            // RETRY, and what this program does not know yet.
            default -> queue.redeliver(delivery, milliseconds(verdict.getRetryAfter()));
        }
    }

    private void admitted(Delivery delivery, ByteString claim, Leases leases) throws IOException, InterruptedException {
        try {
            work(delivery);
        } catch (WorkFailed failure) {
            delivery.failures++;
            boolean isDead = delivery.failures >= MAX_FAILURES;
            if (isDead) {
                append(dead, delivery.line);
            }
            // Behind the dead letter: from now on a copy is admitted.
            if (!claim.isEmpty()) {
                leases.settled(claim);
                dedup.release(claim);
            }
            if (!isDead) {
                queue.redeliver(delivery, 100);
            }
            return;
        }
        confirm(claim);
        leases.settled(claim);
    }

    /** The work is done, and only this keeps its copies away: it is worth more than one try. */
    private void confirm(ByteString claim) throws InterruptedException {
        if (claim.isEmpty()) {
            return; // admitted without the store: there is nothing to settle
        }
        SettleOutcome outcome = dedup.confirm(claim);
        for (int attempt = 1; attempt < 10 && outcome == SettleOutcome.SETTLE_OUTCOME_STORE_UNAVAILABLE; attempt++) {
            Thread.sleep(100);
            outcome = dedup.confirm(claim);
        }
        switch (outcome) {
            case SETTLE_OUTCOME_APPLIED, SETTLE_OUTCOME_ALREADY_APPLIED -> {}
            default -> System.err.println("not confirmed, it may be done twice: " + outcome);
        }
    }

    /** Stands for the real work. */
    private void work(Delivery delivery) throws IOException, InterruptedException, WorkFailed {
        Crossing crossing = Crossing.parse(delivery.line);
        Thread.sleep(crossing.takesMs());
        if (delivery.failures < crossing.fails()) {
            throw new WorkFailed();
        }
        append(done, delivery.line);
    }

    private static final class WorkFailed extends Exception {}

    private static void append(Path file, String line) throws IOException {
        Files.writeString(file, line + "\n", StandardOpenOption.CREATE, StandardOpenOption.APPEND);
    }

    private static long milliseconds(Duration span) {
        return Math.max(100, span.getSeconds() * 1000 + span.getNanos() / 1_000_000);
    }
}
