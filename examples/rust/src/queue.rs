//! Stands for a broker: the lines of a file, each delivered until it is acknowledged. It remembers
//! nothing from one run to the next, so a new run is the redelivery of everything.

use std::{fs, io, path::Path, time::Duration};

use tokio::time::{self, Instant};

pub struct Delivery {
    pub line: String,
    pub failures: u32,
    due: Instant,
}

pub struct Queue(Vec<Delivery>);

impl Queue {
    pub fn open(path: &Path) -> io::Result<Self> {
        let text = fs::read_to_string(path)?;
        let deliveries = text.lines().map(|line| Delivery {
            line: line.to_owned(),
            failures: 0,
            due: Instant::now(),
        });
        Ok(Self(deliveries.collect()))
    }

    /// Up to `most` deliveries that are due; waits for the first. None: the queue is empty.
    pub async fn poll(&mut self, most: usize) -> Vec<Delivery> {
        if let Some(first) = self.0.iter().map(|delivery| delivery.due).min() {
            time::sleep_until(first).await;
        }
        let now = Instant::now();
        let mut batch: Vec<_> = self
            .0
            .extract_if(.., |delivery| delivery.due <= now)
            .collect();
        self.0.extend(batch.drain(most.min(batch.len())..));
        batch
    }

    /// Not acknowledged: it comes again.
    pub fn redeliver(&mut self, delivery: Delivery, after: Duration) {
        let due = Instant::now() + after;
        self.0.push(Delivery { due, ..delivery });
    }
}
