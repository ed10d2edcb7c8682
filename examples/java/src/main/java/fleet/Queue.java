package fleet;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.PriorityQueue;

/**
 * Stands for a broker: the lines of a file, each delivered until it is acknowledged. It remembers nothing from one run
 * to the next, so a new run is the redelivery of everything.
 */
final class Queue {
    /** One message on its way. */
    static final class Delivery {
        final String line;
        int failures;
        private long dueNs;

        private Delivery(String line, long dueNs) {
            this.line = line;
            this.dueNs = dueNs;
        }
    }

    private final PriorityQueue<Delivery> waiting = new PriorityQueue<>(Comparator.comparingLong(delivery -> delivery.dueNs));

    Queue(Path file) throws IOException {
        for (String line : Files.readAllLines(file)) {
            waiting.add(new Delivery(line, System.nanoTime()));
        }
    }

    /** Up to {@code most} deliveries that are due; waits for the first. None: the queue is empty. */
    List<Delivery> poll(int most) throws InterruptedException {
        List<Delivery> batch = new ArrayList<>();
        if (!waiting.isEmpty()) {
            long waitMs = (waiting.peek().dueNs - System.nanoTime()) / 1_000_000 + 1;
            Thread.sleep(Math.max(0, waitMs));
        }
        while (batch.size() < most && !waiting.isEmpty() && waiting.peek().dueNs <= System.nanoTime()) {
            batch.add(waiting.remove());
        }
        return batch;
    }

    /** Not acknowledged: it comes again. */
    void redeliver(Delivery delivery, long afterMs) {
        delivery.dueNs = System.nanoTime() + afterMs * 1_000_000;
        waiting.add(delivery);
    }
}
