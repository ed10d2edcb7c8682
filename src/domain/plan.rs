//! A plan: the store keys that decide about one event.
//!
//! The primary key first, then the previous bucket where the guard reaches into it, then the next
//! one; then, with a space guard, the cells it reaches into in ascending order, each with the same
//! buckets. All keys of a plan share one partition, so that a claim is one lock in memory and one slot
//! in a cluster. A store reads every key of a plan and writes only the primary.

use std::ops::Range;

use xxhash_rust::xxh3::xxh3_128;

use super::{
    cells::cells_within,
    claim::{ClaimState, Nonce, Record, Sighting, Vicinity},
    event::Event,
    identity::Identity,
    key::{
        Blake2bQueue, Bucket, Digest, IdRef, KeyName, MaterialWriter, NameRef, Names, Partition,
    },
    kind::Kind,
    place::Cell,
    policy::{Policy, Window},
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
    /// The device, asset or event id.
    subject: IdRef,
    neighbours: Range<u32>,
    sighting: Sighting,
    kind: Kind,
    event_index: u32,
}

/// A request of 500 events writes and reads its plans several times over.
const _: () = assert!(size_of::<Plan>() <= 128);

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
        self.event_index as usize
    }

    pub fn has_neighbours(&self) -> bool {
        !self.neighbours.is_empty()
    }

    /// What a won claim is stored as, where the request asks for `state`. A session's claim without
    /// a lease is confirmed at once: others may be suppressed on it before it could be released.
    pub const fn stored_state(&self, state: ClaimState) -> ClaimState {
        match state {
            ClaimState::Claimed if self.sighting.is_session() => ClaimState::Confirmed,
            state => state,
        }
    }

    /// The record that a claim by this plan stores.
    pub const fn record(&self, state: ClaimState, nonce: Nonce) -> Record {
        Record {
            state: self.stored_state(state),
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

const USUAL_ID_BYTES: usize = 16;

impl PlanBatch {
    /// For so many events of a namespace.
    fn with_capacity(events: usize, policy: &Policy) -> Self {
        let beside = match policy.window() {
            Window::Session { .. } => 2,
            Window::Buckets { width_ns, guard_ns } if guard_ns >= width_ns => 2,
            Window::None | Window::Buckets { .. } => 0,
        };
        Self {
            plans: Vec::with_capacity(events),
            neighbours: Vec::with_capacity(events * beside),
            names: Names::with_capacity(events * USUAL_ID_BYTES),
        }
    }

    pub fn plans(&self) -> &[Plan] {
        &self.plans
    }

    pub fn primary(&self, plan: &Plan) -> KeyName<'_> {
        self.names.resolve(plan.primary)
    }

    /// What people call the plan's subject: the device, the asset or the event id.
    pub fn subject_name(&self, plan: &Plan) -> &[u8] {
        self.names.id(plan.subject)
    }

    /// The keys beside the primary, in the order of the plan.
    pub fn neighbours(
        &self,
        plan: &Plan,
    ) -> impl ExactSizeIterator<Item = (KeyName<'_>, Vicinity)> {
        let Range { start, end } = plan.neighbours;
        self.neighbours[start as usize..end as usize]
            .iter()
            .map(|neighbour| (self.names.resolve(neighbour.key), neighbour.vicinity))
    }

    /// All keys, the primary first.
    pub fn keys(&self, plan: &Plan) -> impl Iterator<Item = (KeyName<'_>, Vicinity)> {
        std::iter::once((self.primary(plan), Vicinity::PRIMARY)).chain(self.neighbours(plan))
    }
}

/// Plans the events of one request.
#[derive(Debug)]
pub struct Planner<'p> {
    policy: &'p Policy,
    /// Some event of the policy may have keys beside its own.
    reaches_beyond: bool,
    writer: MaterialWriter,
    batch: PlanBatch,
    /// Keys that lack their digests.
    digests: Blake2bQueue<Place>,
}

/// A key's place in the batch.
#[derive(Clone, Copy, Debug)]
enum Place {
    Primary(usize),
    Neighbour(usize),
}

impl<'p> Planner<'p> {
    /// For so many events.
    pub fn new(policy: &'p Policy, events: usize) -> Self {
        let in_time = match policy.window() {
            Window::None => false,
            Window::Buckets { guard_ns, .. } => guard_ns > 0,
            Window::Session { .. } => true,
        };
        Self {
            policy,
            reaches_beyond: in_time || policy.guards().space_m > 0.0,
            writer: MaterialWriter::default(),
            batch: PlanBatch::with_capacity(events, policy),
            digests: Blake2bQueue::default(),
        }
    }

    /// Plans the next event.
    pub fn plan(&mut self, event: &Event<'_>, event_index: usize) {
        let partition = match *event.identity() {
            Identity::Keyed { event_id } => Partition::of_id(event_id.as_bytes()),
            Identity::Transition { .. } | Identity::Ping { .. } => {
                self.writer.subject(event.identity())
            }
        };
        let span = event
            .time()
            .and_then(|time| self.span(event.identity(), time));
        let first_neighbour = self.batch.neighbours.len() as u32;
        if let Some(span) = span
            && self.reaches_beyond
        {
            self.plan_neighbours(event, span);
        }
        let place = Place::Primary(self.batch.plans.len());
        let primary = self.key(event, span.map(|span| span.bucket), cell_of(event), place);
        let subject = match primary {
            NameRef::Id(id) => id,
            NameRef::Decimal(_) | NameRef::Hex(_) => {
                let name = event.identity().name().as_bytes();
                self.batch.names.intern_id(name)
            }
        };
        self.batch.plans.push(Plan {
            partition,
            primary,
            subject,
            neighbours: first_neighbour..self.batch.neighbours.len() as u32,
            sighting: self.sighting(event, span.is_some()),
            kind: event.identity().kind(),
            event_index: event_index as u32,
        });
        if self.digests.is_full() {
            self.digest();
        }
    }

    /// The plans of all events, in the order in which they were planned.
    pub fn finish(mut self) -> PlanBatch {
        self.digest();
        self.batch
    }

    fn digest(&mut self) {
        let PlanBatch {
            plans, neighbours, ..
        } = &mut self.batch;
        self.digests.digest(|place, digest| {
            let key = match place {
                Place::Primary(plan) => &mut plans[plan].primary,
                Place::Neighbour(neighbour) => &mut neighbours[neighbour].key,
            };
            *key = NameRef::hex(digest);
        });
    }

    fn plan_neighbours(&mut self, event: &Event<'_>, span: Span) {
        self.plan_buckets(event, span, cell_of(event), true);
        let guard_m = self.policy.guards().space_m;
        if let Some(fix) = event.fix().filter(|_| guard_m > 0.0) {
            for &cell in &cells_within(fix.position, fix.cell, guard_m) {
                self.plan_buckets(event, span, Some(cell), false);
            }
        }
    }

    /// The keys of one cell, of which is told whether it is the event's own.
    fn plan_buckets(&mut self, event: &Event<'_>, span: Span, cell: Option<Cell>, same_cell: bool) {
        for (bucket, same_bucket) in span.reached() {
            let vicinity = Vicinity {
                same_bucket,
                same_cell,
            };
            if vicinity != Vicinity::PRIMARY {
                let place = Place::Neighbour(self.batch.neighbours.len());
                let key = self.key(event, Some(bucket), cell, place);
                self.batch.neighbours.push(Neighbour { key, vicinity });
            }
        }
    }

    fn sighting(&self, event: &Event<'_>, windowed: bool) -> Sighting {
        match self.policy.window() {
            // Others extend the record: it keeps what they have in common.
            Window::Session { .. } if windowed => Sighting {
                time: event.time(),
                latest: event.time(),
                content_hash: None,
                position: None,
            },
            Window::None | Window::Buckets { .. } | Window::Session { .. } => Sighting {
                time: event.time(),
                latest: None,
                content_hash: event.content_hash(),
                position: event.fix().map(|fix| fix.position),
            },
        }
    }

    /// What the primary key of an event is a digest of.
    pub fn material(&mut self, event: &Event<'_>) -> String {
        self.writer.subject(event.identity());
        let span = event
            .time()
            .and_then(|time| self.span(event.identity(), time));
        match (event.identity(), span) {
            (Identity::Transition { .. }, span) => {
                self.writer.transition(span.map(|span| span.bucket));
            }
            (Identity::Ping { .. }, Some(span)) => self.writer.ping(span.bucket, cell_of(event)),
            (Identity::Ping { .. } | Identity::Keyed { .. }, _) => {}
        }
        String::from_utf8_lossy(self.writer.material()).into_owned()
    }

    /// A key of the event whose subject was written last. One by BLAKE2b gets its digest later.
    fn key(
        &mut self,
        event: &Event<'_>,
        bucket: Option<Bucket>,
        cell: Option<Cell>,
        place: Place,
    ) -> NameRef {
        let digest = match (*event.identity(), bucket) {
            (Identity::Keyed { event_id }, _) => {
                return NameRef::Id(self.batch.names.intern_id(event_id.as_bytes()));
            }
            (Identity::Ping { .. }, Some(bucket)) => {
                self.writer.ping(bucket, cell);
                Digest::Blake2b
            }
            (Identity::Transition { .. }, bucket) => {
                self.writer.transition(bucket);
                self.policy.scheme().transition_digest()
            }
            (Identity::Ping { .. }, None) => {
                unreachable!("a policy that accepts pings has a window")
            }
        };
        match digest {
            Digest::Xxh3 => NameRef::decimal(xxh3_128(self.writer.material())),
            Digest::Blake2b => {
                self.digests.push(self.writer.material(), place);
                NameRef::hex(0)
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

    /// The event's own bucket, then of the previous and the next one those in which a claim could
    /// be near; and whether it is the event's own.
    fn reached(self) -> impl Iterator<Item = (Bucket, bool)> {
        let is_reached = move |distance_ns: u64| match self.reach {
            Reach::Guard(guard_ns) => distance_ns < guard_ns,
            Reach::Always => true,
        };
        let previous = is_reached(self.offset_ns + 1);
        let next = is_reached(self.bucket.width_ns - self.offset_ns);
        let steps = [(0, true), (-1, previous), (1, next)];
        steps
            .into_iter()
            .filter(|(_, reached)| *reached)
            .map(move |(step, _)| {
                let index = self.bucket.index + step;
                (
                    Bucket {
                        index,
                        ..self.bucket
                    },
                    step == 0,
                )
            })
    }
}

fn cell_of(event: &Event<'_>) -> Option<Cell> {
    event.fix().map(|fix| fix.cell)
}
