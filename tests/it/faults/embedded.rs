//! The embedded store under threads that claim, settle and cancel, while its clock creeps and now
//! and then steps far ahead, as after a machine's sleep. Instants are those of that clock.

use std::{
    collections::VecDeque,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use dedupd::{
    clock::Clock,
    domain::{
        claim::{SettleAction, SettleOutcome},
        policy::{Policy, PolicyDraft},
        reason::{Decision, Reason},
        time::EventTime,
    },
    engine::{Engine, admit::AdmitOptions, settle::Settlement},
    grpc::proto,
    store::memory::MemoryStore,
};

use super::{
    checker::{Findings, check},
    history::{Action, Answer, Attempt, Deed, Ending, Event, History, Mode, NoAnswer, Rules, Span},
    recorder::Recorder,
};
use crate::{
    client::Dice,
    stores::{draft, transition},
};

const LEASE: Duration = Duration::from_secs(1);
const TTL: Duration = Duration::from_secs(600);
const COPIES: usize = 3;
/// Copies that are under way at about the same time.
const AT_A_TIME: usize = 24;
const THREADS: usize = 4;
/// Real time between two steps of the clock.
const STEP_EVERY: Duration = Duration::from_micros(50);
const MS: i64 = 1_000_000;

struct World {
    engine: Arc<Engine>,
    clock: Clock,
    recorder: Recorder,
    ready: Mutex<VecDeque<Copy>>,
}

#[derive(Clone, Copy)]
struct Copy {
    event: usize,
    delivery: usize,
    number: usize,
}

pub(super) fn play(seed: u64, events: usize) -> (History, Findings) {
    let clock = Clock::manual(EventTime::from_unix_nanos(i64::MIN));
    let policy = PolicyDraft {
        lease: LEASE,
        ttl: TTL,
        ..draft("stepped")
    };
    let store = Arc::new(MemoryStore::new(clock.clone(), 1 << 30));
    let policies = vec![Arc::new(Policy::new(policy).expect("a valid policy"))];
    let engine = Engine::new(policies, store, clock.clone(), 5000);
    engine.breaker().probe_answered();
    let rules = Rules {
        lease: Some(LEASE),
        ttl: TTL,
        // A clock that steps measures no budget.
        budget: Duration::MAX / 2,
    };
    let world = World {
        engine: Arc::new(engine),
        clock,
        recorder: Recorder::new(rules),
        ready: Mutex::default(),
    };
    let mut dice = Dice::new(seed);
    let mut copies = Vec::new();
    for _ in 0..events {
        let event = world.recorder.event(|_| Event { mode: Mode::Closed });
        copies.extend((0..COPIES).map(|number| Copy {
            event,
            delivery: world.recorder.delivery(event),
            number,
        }));
    }
    for some in copies.chunks_mut(AT_A_TIME) {
        dice.shuffle(some);
    }
    *world.ready.lock().expect("no panic inside") = copies.into();
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| step(&world.clock, Dice::new(seed + 1), &stop));
        let threads: Vec<_> = (2..2 + THREADS as u64)
            .map(|number| {
                let dice = Dice::new(seed.wrapping_mul(1000) + number);
                scope.spawn(|| consume(&world, dice))
            })
            .collect();
        for thread in threads {
            thread.join().expect("no panic");
        }
        stop.store(true, Ordering::Relaxed);
    });
    let history = world.recorder.history();
    let findings = check(&history);
    (history, findings)
}

fn step(clock: &Clock, mut dice: Dice, stop: &AtomicBool) {
    while !stop.load(Ordering::Relaxed) {
        thread::sleep(STEP_EVERY);
        let far = dice.below(500) == 0;
        let ms = if far { dice.below(3000) } else { dice.below(4) };
        clock.advance(Duration::from_millis(ms as u64));
    }
}

fn consume(world: &World, mut dice: Dice) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .expect("a runtime");
    loop {
        let next = world.ready.lock().expect("no panic inside").pop_front();
        let Some(copy) = next else {
            return;
        };
        if !runtime.block_on(world.handle(copy, &mut dice)) {
            let mut ready = world.ready.lock().expect("no panic inside");
            let place = ready.len().min(AT_A_TIME / 2);
            ready.insert(place, copy);
        }
    }
}

impl World {
    /// True once the copy is acknowledged.
    async fn handle(&self, copy: Copy, dice: &mut Dice) -> bool {
        let call = dice.below(usize::MAX >> 32);
        // The first attempts of a call may be cancelled: at once, or with the answer at hand.
        let cancels = [0, 0, 0, 1, 2][dice.below(5)];
        for _ in 0..cancels {
            let (_cancelled, ..) = self.admit(copy, call, true, dice).await;
        }
        let (answer, attempt, token) = self.admit(copy, call, false, dice).await;
        match answer {
            Ok(Answer::Admitted) => {}
            Ok(Answer::Suppressed) => {
                self.recorder.ends(copy.delivery, Ending::Dropped);
                return true;
            }
            Ok(Answer::InFlight) => return false,
            other => panic!("{other:?}"),
        }
        let fate = dice.below(20);
        if fate == 0 {
            let now = self.clock.monotonic();
            self.recorder
                .act(attempt, Span { from: now, to: now }, Deed::Die);
            return false;
        }
        for _ in 0..dice.below(3) {
            thread::sleep(STEP_EVERY * dice.below(40) as u32);
            self.settle(Action::Renew, attempt, &token).await;
        }
        if fate < 4 {
            self.settle(Action::Release, attempt, &token).await;
            return false;
        }
        let now = self.clock.monotonic();
        self.recorder
            .act(attempt, Span { from: now, to: now }, Deed::Work);
        self.settle(Action::Confirm, attempt, &token).await;
        self.recorder.ends(copy.delivery, Ending::Worked);
        true
    }

    async fn admit(
        &self,
        copy: Copy,
        call: usize,
        cancelled: bool,
        dice: &mut Dice,
    ) -> (Result<Answer, NoAnswer>, usize, Vec<u8>) {
        let device = format!("device-{}", copy.event);
        // In turn before and after an edge.
        let nanos = [-50, 50][copy.number % 2] * MS;
        let mut request_id = [0; 16];
        request_id[..8].copy_from_slice(&(call as u64).to_be_bytes());
        request_id[8..].copy_from_slice(&(copy.delivery as u64).to_be_bytes());
        let options = AdmitOptions {
            namespace: "stepped",
            request_id: Some(request_id),
            omit_claims: false,
        };
        let from = self.clock.monotonic();
        let events = [transition(&device, nanos)];
        let prepared = self.engine.prepare(options, events.into_iter());
        let admitting = self.engine.submit(prepared.expect("a good request"));
        let admitting = admitting.expect("room in the queue");
        let mut token = Vec::new();
        let answer = if cancelled && dice.below(2) == 0 {
            drop(admitting);
            Err(NoAnswer::Cancelled)
        } else {
            let admission = admitting.finish().await;
            let reason = admission.verdicts()[0].reason;
            if let Some((_, Some(given))) = admission.answers().next() {
                given.encode(&mut token);
            }
            if cancelled {
                drop(admission);
                Err(NoAnswer::Cancelled)
            } else {
                admission.delivered();
                Ok(read(reason))
            }
        };
        let to = self.clock.monotonic();
        let attempt = self.recorder.attempt(Attempt {
            event: copy.event,
            delivery: copy.delivery,
            // Two copies may have drawn the same number.
            call: call.wrapping_mul(1_000_003) + copy.delivery,
            instance: 0,
            span: Span { from, to },
            answer,
        });
        (answer, attempt, token)
    }

    async fn settle(&self, action: Action, attempt: usize, token: &[u8]) {
        let asked = match action {
            Action::Confirm => SettleAction::Confirm,
            Action::Release => SettleAction::Release,
            Action::Renew => SettleAction::Renew,
        };
        let from = self.clock.monotonic();
        let settling = self.engine.settle(asked, [token].into_iter());
        let settled = settling.expect("room in the queue").finish().await[0];
        let to = self.clock.monotonic();
        let outcome = match settled {
            Settlement::Settled(SettleOutcome::Applied) => proto::SettleOutcome::Applied,
            Settlement::Settled(SettleOutcome::AlreadyApplied) => {
                proto::SettleOutcome::AlreadyApplied
            }
            Settlement::Settled(SettleOutcome::AlreadyConfirmed) => {
                proto::SettleOutcome::AlreadyConfirmed
            }
            Settlement::Settled(SettleOutcome::NotHeld | SettleOutcome::Absent) => {
                proto::SettleOutcome::NotHeld
            }
            Settlement::StoreUnavailable => proto::SettleOutcome::StoreUnavailable,
            Settlement::Malformed => proto::SettleOutcome::Malformed,
        };
        let deed = Deed::Settle(action, Ok(outcome));
        self.recorder.act(attempt, Span { from, to }, deed);
    }
}

fn read(reason: Reason) -> Answer {
    match (reason.decision(), reason) {
        (Decision::Admit, Reason::FirstSeen | Reason::Late) => Answer::Admitted,
        (Decision::Suppress, _) => Answer::Suppressed,
        (Decision::Retry, Reason::InFlight) => Answer::InFlight,
        _ => panic!("{reason:?}"),
    }
}
