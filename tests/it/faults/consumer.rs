//! A consumer as it should be: it works on what is admitted and settles it, drops what is
//! suppressed, asks again for what it is told to; and fails in the ways in which consumers fail.

use std::{sync::Arc, time::Duration};

use dedupd::grpc::proto::SettleOutcome;
use tokio::{task::JoinSet, time};

use super::{
    broker::{Broker, Copy},
    calls::{Caller, Told, Waits},
    history::{Action, Answer, Deed, Ending, NoAnswer, Span},
    site::SERVICES,
};
use crate::client::Dice;

/// Attempts of one Admit call, and of one settlement.
const ATTEMPTS: usize = 5;
const BETWEEN_ATTEMPTS: Duration = Duration::from_millis(40);
/// What the broker waits before it delivers again what a dead consumer held.
const REDELIVERED_AFTER: Duration = Duration::from_millis(300);
/// At most as long a hint is followed.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

pub(super) struct Consumer {
    pub(super) broker: Arc<Broker>,
    pub(super) caller: Arc<Caller>,
    pub(super) lease: Option<Duration>,
    pub(super) budget: Duration,
    pub(super) dice: Dice,
}

/// What becomes of something that was admitted.
#[derive(Clone, Copy, Debug)]
enum Fate {
    Works { takes: Duration, renews: bool },
    Fails { tries_again: bool },
    Dies,
}

impl Consumer {
    /// Until every copy is acknowledged.
    pub(super) async fn run(mut self) {
        let mut at_work = JoinSet::new();
        loop {
            let copies = self.broker.take(1 + self.dice.below(4)).await;
            if copies.is_empty() {
                break;
            }
            let service = self.dice.below(SERVICES);
            let Some((service, told)) = self.ask(service, &copies).await else {
                for copy in copies {
                    self.undecided(copy, REDELIVERED_AFTER);
                }
                continue;
            };
            for (copy, told) in copies.into_iter().zip(told) {
                match told.answer {
                    Answer::Admitted | Answer::FellBack | Answer::FailedOpen => {
                        let fate = self.fate();
                        let work = Work {
                            broker: Arc::clone(&self.broker),
                            caller: Arc::clone(&self.caller),
                            service: self.settled_by(service, &told),
                            lease: self.lease,
                            confirms: self.lease.is_some() || self.dice.below(2) == 0,
                            waits: self.waits(),
                            copy,
                            told,
                        };
                        at_work.spawn(work.run(fate));
                    }
                    Answer::Suppressed => self.broker.acknowledge(copy, Ending::Dropped),
                    Answer::InFlight => self.broker.again_after(copy, pause(&told)),
                    Answer::Undecided => self.undecided(copy, pause(&told)),
                }
            }
            while at_work.try_join_next().is_some() {}
        }
        at_work.join_all().await;
    }

    /// One call, tried again under its id while it is not answered; mostly. With the service that
    /// answered.
    async fn ask(&mut self, service: usize, copies: &[Copy]) -> Option<(usize, Vec<Told>)> {
        let call = self.caller.new_call();
        let mut service = service;
        for _ in 0..ATTEMPTS {
            let waits = self.waits();
            match self.caller.admit(service, call, copies, waits).await {
                Ok(told) => return Some((service, told)),
                Err(_) if self.dice.below(10) == 0 => return None,
                Err(_) => {
                    time::sleep(BETWEEN_ATTEMPTS * self.dice.below(3) as u32).await;
                    if self.dice.below(3) == 0 {
                        service = self.dice.below(SERVICES);
                    }
                }
            }
        }
        None
    }

    /// Any service, or for the claim of an embedded store mostly its own.
    fn settled_by(&mut self, service: usize, told: &Told) -> usize {
        if told.answer == Answer::FellBack && self.dice.below(5) > 0 {
            service
        } else {
            self.dice.below(SERVICES)
        }
    }

    /// Without leases some do not try again, which is when events can be lost.
    fn undecided(&mut self, copy: Copy, pause: Duration) {
        if self.lease.is_none() && self.dice.below(30) == 0 {
            self.broker.acknowledge(copy, Ending::GivenUp);
        } else {
            self.broker.again_after(copy, pause);
        }
    }

    fn waits(&mut self) -> Waits {
        match self.dice.below(20) {
            0 => Waits::For {
                time: self.budget * (1 + self.dice.below(10) as u32) / 10,
                told: self.dice.below(2) == 0,
            },
            _ => Waits::Patiently,
        }
    }

    fn fate(&mut self) -> Fate {
        let short = Duration::from_millis(self.dice.below(30) as u64);
        let lease = self.lease.unwrap_or(Duration::from_millis(200));
        match self.dice.below(100) {
            0..3 => Fate::Dies,
            3..9 => Fate::Fails {
                tries_again: self.lease.is_some() || self.dice.below(4) > 0,
            },
            9..15 => Fate::Works {
                takes: lease * (5 + self.dice.below(12) as u32) / 10,
                renews: self.dice.below(2) == 0,
            },
            _ => Fate::Works {
                takes: short,
                renews: false,
            },
        }
    }
}

fn pause(told: &Told) -> Duration {
    let hint = told.verdict.retry_after.expect("RETRY says when");
    Duration::try_from(hint)
        .expect("a pause is not negative")
        .min(LONGEST_PAUSE)
}

/// What was admitted, until it is settled.
struct Work {
    broker: Arc<Broker>,
    caller: Arc<Caller>,
    service: usize,
    lease: Option<Duration>,
    confirms: bool,
    waits: Waits,
    copy: Copy,
    told: Told,
}

impl Work {
    async fn run(self, fate: Fate) {
        match fate {
            Fate::Works { takes, renews } => {
                self.work(takes, renews).await;
                if self.confirms {
                    self.settle(Action::Confirm).await;
                }
                self.broker.acknowledge(self.copy, Ending::Worked);
            }
            // What cannot be released stays claimed, as if its holder had died.
            Fate::Fails { .. } | Fate::Dies if self.told.verdict.claim.is_empty() => self.die(),
            Fate::Fails { tries_again } => {
                self.settle(Action::Release).await;
                if tries_again {
                    self.broker.again_after(self.copy, BETWEEN_ATTEMPTS);
                } else {
                    self.broker.acknowledge(self.copy, Ending::GivenUp);
                }
            }
            Fate::Dies => self.die(),
        }
    }

    fn die(&self) {
        let now = self.caller.site.now();
        self.record(Span { from: now, to: now }, Deed::Die);
        self.broker.again_after(self.copy, REDELIVERED_AFTER);
    }

    async fn work(&self, takes: Duration, renews: bool) {
        let from = self.caller.site.now();
        let step = match self.lease {
            Some(lease) if renews => lease / 3,
            _ => takes,
        };
        let mut left = takes;
        loop {
            time::sleep(left.min(step)).await;
            left = left.saturating_sub(step);
            if left.is_zero() {
                break;
            }
            // Work goes on whatever it says: Confirm will tell.
            let _ = self.settle_once(Action::Renew).await;
        }
        let to = self.caller.site.now();
        self.record(Span { from, to }, Deed::Work);
    }

    /// Tried again until it is known what became of the claim; mostly.
    async fn settle(&self, action: Action) {
        for _ in 0..ATTEMPTS {
            match self.settle_once(action).await {
                Ok(SettleOutcome::StoreUnavailable) | Err(_) => time::sleep(BETWEEN_ATTEMPTS).await,
                Ok(_) => return,
            }
        }
    }

    /// Where there is something to settle.
    async fn settle_once(&self, action: Action) -> Result<SettleOutcome, NoAnswer> {
        if self.told.verdict.claim.is_empty() {
            return Ok(SettleOutcome::Unspecified);
        }
        self.caller
            .settle(self.service, action, &self.told, self.waits)
            .await
    }

    fn record(&self, span: Span, deed: Deed) {
        self.caller.recorder.act(self.told.attempt, span, deed);
    }
}
