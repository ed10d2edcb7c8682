//! Section 3 of the design by brute force: the judge of the product.
//!
//! Every claim lies in one plain list and every event is compared with all of them; no keys are planned, nothing
//! is indexed. It shares no code with the crate, so that a fault would have to be made twice to go unseen.
//! It knows no store, no outage, no request id and no cancelled call: what it says holds where the store answers.

mod cases;
mod facts;
pub(crate) mod streams;

pub(crate) use facts::{Event, Identity, Place, Position, Rules, Time, Window};
use facts::{Fact, Point, Subject, fact_of};

const EARTH_RADIUS_M: f64 = 6_371_008.8;

/// Decision, reason and outcome are the names of the proto's enums, without prefix.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Answer {
    pub(crate) decision: &'static str,
    pub(crate) reason: &'static str,
    /// The oracle's own number of the claim, where it can be settled.
    pub(crate) claim: Option<usize>,
    pub(crate) first_occurred_at: Option<i64>,
    pub(crate) copy_of_index: Option<usize>,
    pub(crate) time_clamped: bool,
    pub(crate) shadow: bool,
}

#[derive(Debug)]
pub(crate) struct Oracle {
    rules: Rules,
    records: Vec<Record>,
    claims_made: usize,
    /// By the latest call of `admit`.
    suppressed: Vec<Fact>,
}

#[derive(Clone, Debug)]
struct Record {
    /// `None` is nobody's: a foreign value, or a session's seen-only record.
    claim: Option<usize>,
    state: State,
    /// `None` is for ever (only foreign values).
    expires_ms: Option<u64>,
    fact: Fact,
    /// Under a session: the time of every event that was seen in this bucket and cell.
    seen: Vec<i128>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum State {
    Pending,
    Claimed,
    Confirmed,
    Foreign,
}

impl Oracle {
    pub(crate) fn new(rules: Rules) -> Self {
        Self {
            rules,
            records: Vec::new(),
            claims_made: 0,
            suppressed: Vec::new(),
        }
    }

    /// One request: its events are decided in their order.
    pub(crate) fn admit(
        &mut self,
        now_ms: u64,
        now_unix_ns: i64,
        events: &[Event],
        omit_claims: bool,
    ) -> Vec<Answer> {
        self.expire(now_ms);
        self.suppressed.clear();
        let mut made_here: Vec<(usize, usize)> = Vec::new();
        let mut answers = Vec::new();
        for (index, event) in events.iter().enumerate() {
            let mut answer = match fact_of(&self.rules, event, now_unix_ns) {
                Err(fault) => answer("DEAD_LETTER", fault),
                Ok(fact) => match self.lost_to(&fact).cloned() {
                    None => {
                        made_here.push((self.claims_made, index));
                        self.claim(now_ms, now_unix_ns, fact, omit_claims)
                    }
                    Some(record) => {
                        let mut answer = self.refuse(now_ms, fact, &record);
                        answer.copy_of_index = made_here
                            .iter()
                            .find(|(claim, _)| record.claim == Some(*claim))
                            .map(|(_, index)| *index);
                        answer
                    }
                },
            };
            if self.rules.shadow {
                answer.decision = "ADMIT";
                answer.shadow = true;
            }
            answers.push(answer);
        }
        answers
    }

    /// Section 5, the table "Settling", first row.
    pub(crate) fn confirm(&mut self, now_ms: u64, claim: usize) -> &'static str {
        let expires_ms = Some(now_ms + self.rules.ttl_ms);
        let Some(record) = self.held(now_ms, claim) else {
            return "NOT_HELD";
        };
        match record.state {
            State::Pending | State::Claimed => {
                record.state = State::Confirmed;
                record.expires_ms = expires_ms;
                "APPLIED"
            }
            State::Confirmed => "ALREADY_APPLIED",
            State::Foreign => unreachable!("a foreign value has no claim"),
        }
    }

    /// The same table, second row.
    pub(crate) fn release(&mut self, now_ms: u64, claim: usize) -> &'static str {
        let Some(record) = self.held(now_ms, claim) else {
            return "NOT_HELD";
        };
        match record.state {
            State::Pending | State::Claimed => {
                self.records.retain(|record| record.claim != Some(claim));
                "APPLIED"
            }
            State::Confirmed => "ALREADY_CONFIRMED",
            State::Foreign => unreachable!("a foreign value has no claim"),
        }
    }

    /// The same table, third row.
    pub(crate) fn renew(&mut self, now_ms: u64, claim: usize) -> &'static str {
        let expires_ms = Some(now_ms + self.rules.lease_ms);
        let Some(record) = self.held(now_ms, claim) else {
            return "NOT_HELD";
        };
        match record.state {
            State::Pending => {
                record.expires_ms = expires_ms;
                "APPLIED"
            }
            State::Claimed => "ALREADY_APPLIED",
            State::Confirmed => "ALREADY_CONFIRMED",
            State::Foreign => unreachable!("a foreign value has no claim"),
        }
    }

    /// Another program writes, by an unconditional SET, to the primary key of this event. False where the event is
    /// faulty and so has none.
    pub(crate) fn place_foreign(
        &mut self,
        now_ms: u64,
        now_unix_ns: i64,
        event: &Event,
        ttl_ms: Option<u64>,
    ) -> bool {
        self.expire(now_ms);
        let Ok(Fact { key, .. }) = fact_of(&self.rules, event, now_unix_ns) else {
            return false;
        };
        self.records.retain(|record| record.fact.key != key);
        self.records.push(Record {
            claim: None,
            state: State::Foreign,
            expires_ms: ttl_ms.map(|ttl_ms| now_ms + ttl_ms),
            fact: Fact {
                key,
                time: None,
                point: None,
                content_hash: None,
                clamped: false,
            },
            seen: Vec::new(),
        });
        true
    }

    /// Section 3, "What holds whatever the order of arrival"; of suppressed events those of the latest `admit`, as
    /// long as the clock stands still.
    pub(crate) fn promises(&self) -> Result<(), String> {
        let claims: Vec<&Record> = self
            .records
            .iter()
            .filter(|record| record.claim.is_some())
            .collect();
        for (index, one) in claims.iter().enumerate() {
            for other in &claims[index + 1..] {
                let near = match (one.fact.time, other.fact.time, self.rules.window) {
                    (Some(t), Some(t_r), Window::Session { gap_ns })
                        if one.fact.key.bucket.is_some() =>
                    {
                        one.fact.key.subject == other.fact.key.subject
                            && one.fact.key.cell == other.fact.key.cell
                            && (t - t_r).abs() <= gap_ns.into()
                    }
                    _ => self.is_near(&one.fact, other),
                };
                if near {
                    return Err(format!(
                        "two live claims are near each other: {one:?} and {other:?}"
                    ));
                }
            }
        }
        for fact in &self.suppressed {
            if !self.records.iter().any(|record| self.is_near(fact, record)) {
                return Err(format!(
                    "a suppressed event is near no live claim: {fact:?}"
                ));
            }
        }
        Ok(())
    }

    /// A record lives while less than its time has passed.
    fn expire(&mut self, now_ms: u64) {
        self.records.retain(|record| {
            record
                .expires_ms
                .is_none_or(|expires_ms| now_ms < expires_ms)
        });
    }

    fn held(&mut self, now_ms: u64, claim: usize) -> Option<&mut Record> {
        self.expire(now_ms);
        self.records
            .iter_mut()
            .find(|record| record.claim == Some(claim))
    }

    /// Section 3: "duplicate ⇔ some live claim of the subject is near in both"; then "Which claim an event lost to".
    fn lost_to(&self, fact: &Fact) -> Option<&Record> {
        self.records
            .iter()
            .filter(|record| self.is_near(fact, record))
            .min_by_key(|record| {
                let pending_comes_last = record.state == State::Pending;
                let not_under_the_primary_key = record.fact.key != fact.key;
                let (distance, earlier) =
                    times_of(record)
                        .zip(fact.time)
                        .map_or((0, 0), |((earliest, latest), t)| {
                            ((t - earliest).abs().min((t - latest).abs()), earliest)
                        });
                let in_another_cell = record.fact.key.cell != fact.key.cell;
                let by_cell = record.fact.key.cell.map(u64::from);
                (
                    pending_comes_last,
                    not_under_the_primary_key,
                    distance,
                    earlier,
                    in_another_cell,
                    by_cell,
                )
            })
    }

    fn is_near(&self, fact: &Fact, record: &Record) -> bool {
        if record.state == State::Foreign {
            return record.fact.key == fact.key;
        }
        record.fact.key.subject == fact.key.subject
            && self.is_near_in_time(fact, record)
            && self.is_near_in_space(fact, record)
    }

    /// Section 3, "near in time" and "Session window"; a subject without a window is always near.
    fn is_near_in_time(&self, fact: &Fact, record: &Record) -> bool {
        let (Some(t), Some(t_r), Some(bucket)) = (fact.time, record.fact.time, fact.key.bucket)
        else {
            return true;
        };
        match self.rules.window {
            Window::Tumbling { guard_ns, .. } => {
                Some(bucket) == record.fact.key.bucket || (t - t_r).abs() < guard_ns.into()
            }
            Window::Session { gap_ns } => record
                .seen
                .iter()
                .any(|t_seen| (t - t_seen).abs() <= gap_ns.into()),
            Window::None => true,
        }
    }

    /// Section 3, "near in space"; where the position is not part of the key there is one cell: none.
    fn is_near_in_space(&self, fact: &Fact, record: &Record) -> bool {
        if fact.key.cell == record.fact.key.cell {
            return true;
        }
        match (fact.point, record.fact.point, self.rules.place) {
            (Some(p), Some(p_r), Some(place)) => distance_m(p, p_r) < place.guard_m,
            _ => false,
        }
    }

    /// Section 5, the first paragraph, and for sessions that of section 3.
    fn claim(&mut self, now_ms: u64, now_unix_ns: i64, fact: Fact, omit_claims: bool) -> Answer {
        let in_session = is_in_session(&self.rules, &fact);
        let (state, lives_ms) = if omit_claims || (in_session && self.rules.lease_ms == 0) {
            (State::Confirmed, self.rules.ttl_ms)
        } else if self.rules.lease_ms == 0 {
            (State::Claimed, self.rules.ttl_ms)
        } else {
            (State::Pending, self.rules.lease_ms)
        };
        let ttl_ns = i128::from(self.rules.ttl_ms) * 1_000_000;
        let late = fact
            .time
            .is_some_and(|t| i128::from(now_unix_ns) - t > ttl_ns);
        let mut answer = answer("ADMIT", if late { "LATE" } else { "FIRST_SEEN" });
        answer.time_clamped = fact.clamped;
        answer.claim = (state != State::Confirmed).then_some(self.claims_made);
        let claim = Some(self.claims_made);
        self.claims_made += 1;
        self.store(claim, state, now_ms + lives_ms, fact);
        answer
    }

    fn store(&mut self, claim: Option<usize>, state: State, expires_ms: u64, fact: Fact) {
        let (fact, seen) = if is_in_session(&self.rules, &fact) {
            let seen = fact.time.into_iter().collect();
            (
                Fact {
                    point: None,
                    content_hash: None,
                    ..fact
                },
                seen,
            )
        } else {
            (fact, Vec::new())
        };
        self.records.push(Record {
            claim,
            state,
            expires_ms: Some(expires_ms),
            fact,
            seen,
        });
    }

    /// The event lost to this record: why, and what a session remembers of it.
    fn refuse(&mut self, now_ms: u64, fact: Fact, record: &Record) -> Answer {
        let (decision, reason) = classify(&self.rules, &fact, record);
        let mut answer = answer(decision, reason);
        answer.time_clamped = fact.clamped;
        if decision == "SUPPRESS" {
            answer.first_occurred_at = times_of(record)
                .map(|(earliest, _)| i64::try_from(earliest).expect("fits by validation"));
            if is_in_session(&self.rules, &fact) {
                self.see(now_ms, &fact);
            }
            self.suppressed.push(fact);
        }
        answer
    }

    /// Section 3, "A suppressed event is recorded in its own bucket".
    fn see(&mut self, now_ms: u64, fact: &Fact) {
        let expires_ms = now_ms + self.rules.ttl_ms;
        let Some(own) = self
            .records
            .iter_mut()
            .find(|record| record.fact.key == fact.key)
        else {
            self.store(None, State::Confirmed, expires_ms, fact.clone());
            return;
        };
        match own.state {
            State::Claimed | State::Confirmed => {
                own.seen.extend(fact.time);
                own.expires_ms = Some(expires_ms);
            }
            State::Pending | State::Foreign => {}
        }
    }
}

/// Section 3, "Classification", by its numbers.
fn classify(rules: &Rules, e: &Fact, r: &Record) -> (&'static str, &'static str) {
    // 1.
    if r.state == State::Pending {
        return ("RETRY", "IN_FLIGHT");
    }
    // 2.
    if r.state == State::Foreign {
        return ("SUPPRESS", "UNCLASSIFIED");
    }
    // 3.
    let keyed = matches!(e.key.subject, Subject::Keyed { .. });
    let both_hashes = e.content_hash.zip(r.fact.content_hash);
    if keyed && both_hashes.is_some_and(|(one, other)| one != other) {
        return if rules.mismatch_dead_letters {
            ("DEAD_LETTER", "CONTENT_MISMATCH")
        } else {
            ("SUPPRESS", "CONTENT_CONFLICT")
        };
    }
    // 4.
    let same_content = match both_hashes {
        Some((one, other)) => one == other,
        None if !r.seen.is_empty() => times_of(r)
            .is_some_and(|(earliest, latest)| e.time == Some(earliest) || e.time == Some(latest)),
        None => e.time == r.fact.time && e.point == r.fact.point,
    };
    if same_content {
        return ("SUPPRESS", "REDELIVERY");
    }
    // 5.
    let through_a_guard = match rules.window {
        Window::Tumbling { width_ns, guard_ns } => {
            0 < guard_ns && guard_ns < width_ns && e.key.bucket != r.fact.key.bucket
        }
        Window::Session { .. } | Window::None => false,
    };
    if through_a_guard || e.key.cell != r.fact.key.cell {
        return ("SUPPRESS", "BOUNDARY");
    }
    // 6.
    if matches!(e.key.subject, Subject::Transition { .. }) {
        return ("SUPPRESS", "RESTAMPED");
    }
    match (e.point, r.fact.point, rules.place) {
        (Some(p), Some(p_r), Some(place))
            if 0.0 < distance_m(p, p_r) && distance_m(p, p_r) <= place.jitter_radius_m =>
        {
            ("SUPPRESS", "JITTER")
        }
        _ => ("SUPPRESS", "REOBSERVATION"),
    }
}

fn answer(decision: &'static str, reason: &'static str) -> Answer {
    Answer {
        decision,
        reason,
        claim: None,
        first_occurred_at: None,
        copy_of_index: None,
        time_clamped: false,
        shadow: false,
    }
}

/// A sequence has no window, so a session does not hold it.
fn is_in_session(rules: &Rules, fact: &Fact) -> bool {
    matches!(rules.window, Window::Session { .. }) && fact.key.bucket.is_some()
}

/// Earliest and latest: the same but under a session.
fn times_of(record: &Record) -> Option<(i128, i128)> {
    let earliest = record.seen.iter().copied().min().or(record.fact.time)?;
    let latest = record.seen.iter().copied().max().or(record.fact.time)?;
    Some((earliest, latest))
}

/// Haversine.
fn distance_m(one: Point, other: Point) -> f64 {
    let half_north = (other.latitude - one.latitude).to_radians() / 2.0;
    let half_east = (other.longitude - one.longitude).to_radians() / 2.0;
    let along = one.latitude.to_radians().cos() * other.latitude.to_radians().cos();
    let haversine = half_north.sin().powi(2) + along * half_east.sin().powi(2);
    2.0 * EARTH_RADIUS_M * haversine.sqrt().min(1.0).asin()
}
