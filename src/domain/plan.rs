//! A plan: the store keys that decide about one event.
//!
//! The primary key first, then the previous bucket where the guard reaches into it, then the next
//! one. All keys of a plan share one partition, so that a claim is one lock in memory and one slot
//! in a cluster. A store reads every key of a plan and writes only the primary.

use std::ops::Range;

use super::{
    claim::{ClaimState, Nonce, Record, Sighting, Vicinity},
    event::Event,
    identity::Identity,
    key::{Bucket, KeyName, MaterialWriter, NameRef, Names, Partition},
    place::Cell,
    policy::{Kind, Policy, Window},
    time::EventTime,
};

#[derive(Clone, Debug)]
struct Neighbour {
    key: NameRef,
    vicinity: Vicinity,
}

#[derive(Clone, Debug)]
pub struct Plan {
    partition: Partition,
    primary: NameRef,
    neighbours: Range<usize>,
    sighting: Sighting,
    kind: Kind,
    event_index: usize,
}

impl Plan {
    pub const fn kind(&self) -> Kind {
        self.kind
    }

    pub const fn partition(&self) -> Partition {
        self.partition
    }

    pub const fn sighting(&self) -> &Sighting {
        &self.sighting
    }

    /// Which event of the request this is.
    pub const fn event_index(&self) -> usize {
        self.event_index
    }

    pub fn has_neighbours(&self) -> bool {
        !self.neighbours.is_empty()
    }

    /// The record that a claim by this plan stores.
    pub const fn record(&self, state: ClaimState, nonce: Nonce) -> Record {
        Record {
            state,
            nonce,
            sighting: self.sighting,
        }
    }
}

/// The plans of one request, with all their keys in three allocations.
#[derive(Clone, Debug, Default)]
pub struct PlanBatch {
    plans: Vec<Plan>,
    neighbours: Vec<Neighbour>,
    names: Names,
}

impl PlanBatch {
    pub fn with_capacity(events: usize) -> Self {
        Self {
            plans: Vec::with_capacity(events),
            ..Self::default()
        }
    }

    pub fn plans(&self) -> &[Plan] {
        &self.plans
    }

    pub fn primary(&self, plan: &Plan) -> KeyName<'_> {
        self.names.resolve(plan.primary)
    }

    /// The keys beside the primary, in the order of the plan.
    pub fn neighbours(
        &self,
        plan: &Plan,
    ) -> impl ExactSizeIterator<Item = (KeyName<'_>, Vicinity)> {
        self.neighbours[plan.neighbours.clone()]
            .iter()
            .map(|neighbour| (self.names.resolve(neighbour.key), neighbour.vicinity))
    }

    /// All keys, the primary first.
    pub fn keys(&self, plan: &Plan) -> impl Iterator<Item = (KeyName<'_>, Vicinity)> {
        std::iter::once((self.primary(plan), Vicinity::PRIMARY)).chain(self.neighbours(plan))
    }
}

/// Plans the events of one namespace.
#[derive(Debug)]
pub struct Planner<'p> {
    policy: &'p Policy,
    writer: MaterialWriter,
}

impl<'p> Planner<'p> {
    pub fn new(policy: &'p Policy) -> Self {
        Self {
            policy,
            writer: MaterialWriter::default(),
        }
    }

    /// Appends the plan of `event`.
    pub fn plan(&mut self, event: &Event<'_>, event_index: usize, batch: &mut PlanBatch) {
        let partition = self.writer.subject(event.identity());
        let span = event
            .time()
            .and_then(|time| self.span(event.identity(), time));
        let first_neighbour = batch.neighbours.len();
        if let Some(span) = span {
            for (bucket, reached) in span.adjacent() {
                if reached {
                    let key = batch.names.intern(self.key(event, Some(bucket)));
                    let vicinity = Vicinity {
                        same_bucket: false,
                        same_cell: true,
                    };
                    batch.neighbours.push(Neighbour { key, vicinity });
                }
            }
        }
        // The primary comes last, so that the writer is left with its material.
        let primary = batch
            .names
            .intern(self.key(event, span.map(|span| span.bucket)));
        batch.plans.push(Plan {
            partition,
            primary,
            neighbours: first_neighbour..batch.neighbours.len(),
            sighting: Sighting {
                time: event.time(),
                content_hash: event.content_hash(),
                position: event.fix().map(|fix| fix.position),
            },
            kind: event.identity().kind(),
            event_index,
        });
    }

    /// What the primary key of the event planned last is a digest of.
    pub fn material(&self) -> &str {
        self.writer.material()
    }

    fn key<'a>(&mut self, event: &Event<'a>, bucket: Option<Bucket>) -> KeyName<'a> {
        match (*event.identity(), bucket) {
            (Identity::Keyed { event_id }, _) => KeyName::Id(event_id.as_bytes()),
            (Identity::Ping { .. }, Some(bucket)) => {
                let cell: Option<Cell> = event.fix().map(|fix| fix.cell);
                self.writer.ping(bucket, cell)
            }
            (Identity::Transition { .. }, bucket) => self
                .writer
                .transition(bucket, self.policy.scheme().transition_digest()),
            (Identity::Ping { .. }, None) => {
                unreachable!("a policy that accepts pings has a window")
            }
        }
    }

    /// Where the event lies in its window; `None` where no window applies.
    fn span(&self, identity: &Identity<'_>, time: EventTime) -> Option<Span> {
        if let Identity::Transition {
            sequence: Some(_), ..
        } = identity
        {
            return None;
        }
        match self.policy.window() {
            Window::None => None,
            Window::Buckets { width_ns, guard_ns } => {
                Some(Span::new(time, width_ns, Reach::Guard(guard_ns)))
            }
            Window::Session { gap_ns } => Some(Span::new(time, gap_ns, Reach::Always)),
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Reach {
    /// Into a neighbour whose nearest instant lies less than this away.
    Guard(u64),
    Always,
}

#[derive(Clone, Copy, Debug)]
struct Span {
    bucket: Bucket,
    offset_ns: u64,
    reach: Reach,
}

impl Span {
    fn new(time: EventTime, width_ns: u64, reach: Reach) -> Self {
        // Policies bound widths to ten years, which i64 holds.
        let width = width_ns as i64;
        let bucket = Bucket {
            index: time.unix_nanos().div_euclid(width),
            width_ns,
        };
        Self {
            bucket,
            offset_ns: time.unix_nanos().rem_euclid(width) as u64,
            reach,
        }
    }

    /// The previous and the next bucket, and whether a claim there could be near.
    fn adjacent(self) -> [(Bucket, bool); 2] {
        let neighbour = |step: i64| Bucket {
            index: self.bucket.index + step,
            ..self.bucket
        };
        let reached = |distance_ns: u64| match self.reach {
            Reach::Guard(guard_ns) => distance_ns < guard_ns,
            Reach::Always => true,
        };
        [
            (neighbour(-1), reached(self.offset_ns + 1)),
            (neighbour(1), reached(self.bucket.width_ns - self.offset_ns)),
        ]
    }
}
