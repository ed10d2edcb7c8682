//! A load, from the first connection to the last answer.

use std::{sync::Arc, time::Duration};

use tokio::{sync::Notify, task::JoinSet, time};
use tonic::Status;

use super::{
    cpu::{CpuTimes, NoCpuTime},
    events::Events,
    lane::{Lane, Schedule},
    load::{CallForm, Load},
    pacer::Pacer,
    stream,
    tally::Tally,
    unary,
};
use crate::{
    clock::Clock,
    grpc::{
        dial::{Unreachable, dial},
        proto::dedup_service_client::DedupServiceClient,
    },
};

/// A service that answers nothing for so long, with calls in flight, is given up.
pub(super) const SILENCE: Duration = Duration::from_secs(60);
/// Answers of the largest batches pass.
const MAX_ANSWER_BYTES: usize = 64 << 20;

#[derive(Clone, Debug, thiserror::Error)]
pub enum BenchFault {
    #[error(transparent)]
    Unreachable(#[from] Unreachable),
    #[error("the service ended the load: {0}")]
    Ended(String),
    #[error(transparent)]
    NoCpuTime(#[from] NoCpuTime),
}

impl BenchFault {
    pub(super) fn silent() -> Self {
        BenchFault::Ended(format!("no answer for {} s", SILENCE.as_secs()))
    }
}

impl From<Status> for BenchFault {
    fn from(status: Status) -> Self {
        BenchFault::Ended(format!("{:?}: {}", status.code(), status.message()))
    }
}

/// What a load came to.
#[derive(Clone, Debug)]
pub struct Ran {
    pub tally: Tally,
    /// From the end of the warm-up to the last answer.
    pub measured: Duration,
    /// Spent in that time.
    pub cpu: CpuTimes,
}

/// Loads the service; `run_id` tells this run's events from those of others.
pub async fn run(load: Load, run_id: u32) -> Result<Ran, BenchFault> {
    CpuTimes::now(&load.watched)?;
    let load = Arc::new(load);
    let mut channels = Vec::with_capacity(load.connections);
    for _ in 0..load.connections {
        channels.push(dial(&load.address).await?);
    }
    let mut opened = Vec::with_capacity(load.lanes);
    for number in 0..load.lanes {
        let channel = channels[number % channels.len()].clone();
        let mut client =
            DedupServiceClient::new(channel).max_decoding_message_size(MAX_ANSWER_BYTES);
        let stream = match load.form {
            CallForm::Stream => Some(stream::open(&mut client, load.in_flight).await?),
            CallForm::Unary => None,
        };
        opened.push((client, stream));
    }

    let clock = Clock::system();
    let start = clock.monotonic();
    let measured_from = start + load.warm_up;
    let gap_s = load.lane_gap_s();
    let mut lanes = JoinSet::new();
    let mut wakes = Vec::with_capacity(load.lanes);
    for (number, (client, stream)) in opened.into_iter().enumerate() {
        let wake = Arc::new(Notify::new());
        wakes.push(Arc::clone(&wake));
        let offset_s = gap_s.unwrap_or(0.0) * number as f64 / load.lanes as f64;
        let schedule = Schedule {
            first: start + Duration::from_secs_f64(offset_s),
            gap_s,
            measured_from,
            end: measured_from + load.duration,
            next: 0,
        };
        let events = Events::new(load.recipe, run_id, number);
        let lane = Lane::new(Arc::clone(&load), clock.clone(), wake, schedule, events);
        match stream {
            Some(stream) => lanes.spawn(stream::run(lane, stream)),
            None => lanes.spawn(unary::run(lane, client)),
        };
    }
    let _pacer = gap_s.map(|gap_s| {
        let gap_s = gap_s / load.lanes as f64;
        Pacer::start(clock.clone(), start, gap_s, wakes)
    });

    let warmed = async {
        if !load.warm_up.is_zero() {
            time::sleep(measured_from.saturating_sub(clock.monotonic())).await;
        }
        Ok(CpuTimes::now(&load.watched)?)
    };
    let answered = async {
        let mut tally = Tally::default();
        while let Some(lane) = lanes.join_next().await {
            tally.merge(&lane.expect("a lane does not panic")?);
        }
        Ok::<_, BenchFault>((tally, CpuTimes::now(&load.watched)?))
    };
    let (before, (tally, after)) = tokio::try_join!(warmed, answered)?;
    Ok(Ran {
        measured: tally.last_answer.saturating_sub(measured_from),
        cpu: after.since(&before),
        tally,
    })
}
