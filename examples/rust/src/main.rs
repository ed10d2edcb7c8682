//! Poll, Admit, work, Confirm, acknowledge.

mod dedup;
mod queue;

mod proto {
    tonic::include_proto!("dedupd.v1");
}

use std::{
    env,
    error::Error,
    fs::OpenOptions,
    io::{self, Write},
    path::{Path, PathBuf},
    time::Duration,
};

use serde::Deserialize;
use tokio::time;

use dedup::Dedup;
use proto::{Decision, Event, LatLng, Ping, Verdict, event, ping::Position as PingPosition};
use queue::{Delivery, Queue};

const BATCH: usize = 10;
/// After so many failures a position goes to the dead letters.
const MAX_FAILURES: u32 = 3;

/// A line of the queue. The last two fields make work fail or take long, to see what happens.
#[derive(Deserialize)]
#[serde(default)]
#[derive(Default)]
struct Position {
    asset: String,
    at: String,
    latitude: Option<f64>,
    longitude: Option<f64>,
    fails: u32,
    takes_ms: u64,
}

impl Position {
    fn parse(line: &str) -> Self {
        // What cannot be read has no id, and dedupd says what to do with it.
        serde_json::from_str(line).unwrap_or_default()
    }

    /// What is missing stays unset: dedupd says what is wrong with the event, and that it is dead.
    fn event(self) -> Event {
        let lat_lng = LatLng {
            latitude: self.latitude,
            longitude: self.longitude,
        };
        let ping = Ping {
            asset_id: self.asset,
            position: Some(PingPosition::LatLng(lat_lng)),
        };
        Event {
            identity: Some(event::Identity::Ping(ping)),
            // The device's own clock, RFC 3339 with an offset; never the time of arrival.
            time: Some(event::Time::OccurredAtText(self.at)),
            ..Event::default()
        }
    }
}

struct Consumer {
    dedup: Dedup,
    queue: Queue,
    folder: PathBuf,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let address = env::var("DEDUPD_ADDRESS").unwrap_or("127.0.0.1:50061".to_owned());
    let mut arguments = env::args().skip(1);
    let (Some(file), Some(folder)) = (arguments.next(), arguments.next()) else {
        return Err("usage: positions QUEUE FOLDER".into());
    };
    let mut consumer = Consumer {
        dedup: Dedup::new(&address, "positions")?,
        queue: Queue::open(Path::new(&file))?,
        folder: folder.into(),
    };
    consumer.run().await
}

impl Consumer {
    async fn run(&mut self) -> Result<(), Box<dyn Error>> {
        loop {
            let batch = self.queue.poll(BATCH).await;
            if batch.is_empty() {
                return Ok(());
            }
            let events = batch
                .iter()
                .map(|delivery| Position::parse(&delivery.line).event());
            let answer = self.dedup.admit(events.collect()).await?;
            let _leases = self.dedup.keep(&answer);
            for (delivery, verdict) in batch.into_iter().zip(answer.verdicts) {
                self.handle(delivery, verdict).await?;
            }
        }
    }

    /// Does what the verdict says. To return without `redeliver` is to acknowledge.
    async fn handle(&mut self, delivery: Delivery, verdict: Verdict) -> io::Result<()> {
        match verdict.decision() {
            Decision::Admit => return self.admitted(delivery, verdict.claim).await,
            Decision::Suppress => {}
            Decision::DeadLetter => self.append("dead.jsonl", &delivery.line)?,
            // Unspecified is what this program does not know yet.
            Decision::Retry | Decision::Unspecified => {
                let after = verdict
                    .retry_after
                    .and_then(|after| Duration::try_from(after).ok());
                let after = after.unwrap_or_default().max(Duration::from_millis(100));
                self.queue.redeliver(delivery, after);
            }
        }
        Ok(())
    }

    async fn admitted(&mut self, mut delivery: Delivery, claim: Vec<u8>) -> io::Result<()> {
        if self.work(&delivery).await? {
            self.dedup.confirm(claim).await;
            return Ok(());
        }
        delivery.failures += 1;
        let is_dead = delivery.failures >= MAX_FAILURES;
        if is_dead {
            self.append("dead.jsonl", &delivery.line)?;
        }
        // Behind the dead letter: from now on a copy is admitted.
        if !claim.is_empty() {
            self.dedup.release(claim).await;
        }
        if !is_dead {
            self.queue.redeliver(delivery, Duration::from_millis(100));
        }
        Ok(())
    }

    /// Stands for the real work; says whether it succeeded.
    async fn work(&self, delivery: &Delivery) -> io::Result<bool> {
        let position = Position::parse(&delivery.line);
        time::sleep(Duration::from_millis(position.takes_ms)).await;
        if delivery.failures < position.fails {
            return Ok(false);
        }
        self.append("done.jsonl", &delivery.line)?;
        Ok(true)
    }

    fn append(&self, file: &str, line: &str) -> io::Result<()> {
        let path = self.folder.join(file);
        let mut file = OpenOptions::new().create(true).append(true).open(path)?;
        file.write_all(format!("{line}\n").as_bytes())
    }
}
