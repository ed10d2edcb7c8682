//! A claim: what a store keeps under a key, and which of several an event loses to.
//!
//! Layout of a record. Byte 0: version in the high nibble, state in the low one. Bytes 1 to 8:
//! nonce. Byte 9: flags. Then, big-endian, what the flags announce in this order: event time
//! (session: earliest and latest), content hash, latitude and longitude as f64. Times are offset
//! binary (t XOR 2⁶³), so that their bytes sort like the times.

use super::{place::Position, time::EventTime};

const VERSION: u8 = 8;

const FLAG_TIME: u8 = 1;
const FLAG_CONTENT_HASH: u8 = 2;
const FLAG_POSITION: u8 = 4;
const FLAG_SESSION: u8 = 8;

const HEADER_BYTES: usize = 10;
/// Longest record: header, time, hash, position.
pub const MAX_RECORD_BYTES: usize = HEADER_BYTES + 8 + 8 + 16;

/// Names one holding of a claim: seven bytes for the call and the event, then an attempt.
///
/// Settling and recognising one's own compare seven bytes; giving back compares all eight, so that
/// it never deletes what a retry of the call has adopted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Nonce([u8; 8]);

impl Nonce {
    /// Of records that nobody can settle: an event was seen, not admitted.
    pub const NOBODY: Self = Self([0; 8]);

    pub const fn from_bytes(bytes: [u8; 8]) -> Self {
        Self(bytes)
    }

    pub const fn to_bytes(self) -> [u8; 8] {
        self.0
    }

    /// The first seven bytes, as the low bytes of a number.
    pub const fn holder(self) -> u64 {
        u64::from_be_bytes(self.0) >> 8
    }

    pub const fn attempt(self) -> u8 {
        self.0[7]
    }

    pub const fn with_attempt(self, attempt: u8) -> Self {
        let [a, b, c, d, e, f, g, _] = self.0;
        Self([a, b, c, d, e, f, g, attempt])
    }

    /// Of the record that a claim made during an outage becomes in the shared store: another attempt
    /// of the same holder, so that what the outage has left to be given back does not delete it.
    pub const fn written_back(self) -> Self {
        if self.holder() == Self::NOBODY.holder() {
            return self;
        }
        self.with_attempt(self.attempt() ^ 0x80)
    }

    pub const fn same_holder(self, other: Self) -> bool {
        self.holder() == other.holder()
    }
}

/// The further settled, the greater.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ClaimState {
    /// Admitted under a lease, not settled.
    Pending = 1,
    /// Admitted without a lease; may still be released.
    Claimed = 2,
    Confirmed = 3,
}

impl ClaimState {
    const fn from_nibble(nibble: u8) -> Option<Self> {
        match nibble {
            1 => Some(ClaimState::Pending),
            2 => Some(ClaimState::Claimed),
            3 => Some(ClaimState::Confirmed),
            _ => None,
        }
    }

    /// A copy may be suppressed on it.
    pub const fn is_settled(self) -> bool {
        match self {
            ClaimState::Pending => false,
            ClaimState::Claimed | ClaimState::Confirmed => true,
        }
    }
}

/// What is known of the event that a claim was made for; under a session, of all events that were
/// seen in the claim's bucket.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sighting {
    /// Under a session the earliest.
    pub time: Option<EventTime>,
    /// Under a session the latest; it then holds neither hash nor position.
    pub latest: Option<EventTime>,
    pub content_hash: Option<u64>,
    pub position: Option<Position>,
}

impl Sighting {
    /// A record that other events extend: it belongs to a session.
    pub const fn is_session(&self) -> bool {
        self.latest.is_some()
    }

    /// The least distance between this event and what the other one knows.
    fn distance_ns(&self, other: &Self) -> Option<u64> {
        let (time, earliest) = self.time.zip(other.time)?;
        let latest = other.latest.unwrap_or(earliest);
        Some(if (earliest..=latest).contains(&time) {
            0
        } else {
            time.distance_ns(earliest).min(time.distance_ns(latest))
        })
    }

    /// The event has the time of the other one, or of either end of what was seen.
    pub fn has_time_of(&self, other: &Self) -> bool {
        self.time == other.time || (other.is_session() && self.time == other.latest)
    }

    /// Widened by another event of the same bucket.
    pub(super) fn with(&self, event: &Self) -> Self {
        Self {
            time: self.time.min(event.time),
            latest: self.latest.max(event.latest),
            ..*self
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Record {
    pub state: ClaimState,
    pub nonce: Nonce,
    pub sighting: Sighting,
}

impl Record {
    /// Taken over by a retry of the call that made it, which would store `state` under `nonce`. It
    /// gets the retry's attempt, which nothing that an earlier attempt still gives back has. `None`
    /// where it may not be taken over: what is confirmed is settled work, save for a call that stores confirmed at once.
    pub fn adopted_as(&self, state: ClaimState, nonce: Nonce) -> Option<Self> {
        let attempt = match nonce.attempt() {
            attempt if attempt == self.nonce.attempt() => attempt.wrapping_add(1),
            attempt => attempt,
        };
        match (self.state, state) {
            (ClaimState::Pending | ClaimState::Claimed, _)
            | (ClaimState::Confirmed, ClaimState::Confirmed) => Some(Self {
                state,
                nonce: self.nonce.with_attempt(attempt),
                ..*self
            }),
            (ClaimState::Confirmed, ClaimState::Pending | ClaimState::Claimed) => None,
        }
    }

    /// Only the event that it was made for has been seen under it, so that deleting it forgets
    /// nothing else.
    pub fn saw_one_event(&self) -> bool {
        self.sighting
            .latest
            .is_none_or(|latest| self.sighting.time == Some(latest))
    }

    pub fn encode(&self, out: &mut Vec<u8>) {
        let Sighting {
            time,
            latest,
            content_hash,
            position,
        } = self.sighting;
        let flag = |set: bool, flag: u8| if set { flag } else { 0 };
        let flags = flag(time.is_some(), FLAG_TIME)
            | flag(content_hash.is_some(), FLAG_CONTENT_HASH)
            | flag(position.is_some(), FLAG_POSITION)
            | flag(latest.is_some(), FLAG_SESSION);
        out.push((VERSION << 4) | self.state as u8);
        out.extend_from_slice(&self.nonce.to_bytes());
        out.push(flags);
        for time in [time, latest].into_iter().flatten() {
            out.extend_from_slice(&offset_binary(time).to_be_bytes());
        }
        if let Some(hash) = content_hash {
            out.extend_from_slice(&hash.to_be_bytes());
        }
        if let Some(position) = position {
            out.extend_from_slice(&position.latitude_deg().to_be_bytes());
            out.extend_from_slice(&position.longitude_deg().to_be_bytes());
        }
    }
}

const fn offset_binary(time: EventTime) -> u64 {
    time.unix_nanos() as u64 ^ (1 << 63)
}

/// What stands under a key.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Standing {
    Record(Record),
    /// A record of a later version: only its state and nonce are known.
    Newer {
        version: u8,
        state: ClaimState,
        nonce: Nonce,
    },
    /// Not a record: written by something else.
    Foreign,
}

impl Standing {
    pub fn decode(value: &[u8]) -> Self {
        let Some((header, mut rest)) = value.split_first_chunk::<HEADER_BYTES>() else {
            return Standing::Foreign;
        };
        let [head, n0, n1, n2, n3, n4, n5, n6, n7, flags] = *header;
        let nonce = Nonce::from_bytes([n0, n1, n2, n3, n4, n5, n6, n7]);
        let Some(state) = ClaimState::from_nibble(head & 15) else {
            return Standing::Foreign;
        };
        match head >> 4 {
            VERSION => {}
            version if version > VERSION => {
                return Standing::Newer {
                    version,
                    state,
                    nonce,
                };
            }
            _ => return Standing::Foreign,
        }
        if flags & !(FLAG_TIME | FLAG_CONTENT_HASH | FLAG_POSITION | FLAG_SESSION) != 0 {
            return Standing::Foreign;
        }
        let mut take = |flag: u8| -> Option<Option<u64>> {
            if flags & flag == 0 {
                return Some(None);
            }
            let (bytes, after) = rest.split_first_chunk::<8>()?;
            rest = after;
            Some(Some(u64::from_be_bytes(*bytes)))
        };
        let fields = (
            take(FLAG_TIME),
            take(FLAG_SESSION),
            take(FLAG_CONTENT_HASH),
            take(FLAG_POSITION),
            take(FLAG_POSITION),
        );
        let (Some(time), Some(latest), Some(content_hash), Some(latitude), Some(longitude)) =
            fields
        else {
            return Standing::Foreign;
        };
        if !rest.is_empty() {
            return Standing::Foreign;
        }
        let time_of = |bits: u64| EventTime::from_unix_nanos((bits ^ (1 << 63)) as i64);
        Standing::Record(Record {
            state,
            nonce,
            sighting: Sighting {
                time: time.map(time_of),
                latest: latest.map(time_of),
                content_hash,
                position: latitude.zip(longitude).map(|(latitude, longitude)| {
                    Position::from_stored(f64::from_bits(latitude), f64::from_bits(longitude))
                }),
            },
        })
    }

    /// The first nine bytes of a record, which hold its state and its nonce.
    pub fn head(&self) -> Option<Vec<u8>> {
        let (state, nonce) = self.state().zip(self.nonce())?;
        let version = match self {
            Standing::Record(_) => VERSION,
            Standing::Newer { version, .. } => *version,
            Standing::Foreign => return None,
        };
        let mut head = vec![(version << 4) | state as u8];
        head.extend_from_slice(&nonce.to_bytes());
        Some(head)
    }

    pub const fn nonce(&self) -> Option<Nonce> {
        match self {
            Standing::Record(record) => Some(record.nonce),
            Standing::Newer { nonce, .. } => Some(*nonce),
            Standing::Foreign => None,
        }
    }

    /// `None` for a foreign value, which counts as settled.
    pub const fn state(&self) -> Option<ClaimState> {
        match self {
            Standing::Record(record) => Some(record.state),
            Standing::Newer { state, .. } => Some(*state),
            Standing::Foreign => None,
        }
    }

    pub const fn sighting(&self) -> Option<&Sighting> {
        match self {
            Standing::Record(record) => Some(&record.sighting),
            Standing::Newer { .. } | Standing::Foreign => None,
        }
    }

    /// A foreign value counts as settled.
    pub fn is_settled(&self) -> bool {
        self.state().is_none_or(ClaimState::is_settled)
    }
}

/// What a holder asks for its claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SettleAction {
    Confirm,
    Release,
    Renew,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SettleOutcome {
    Applied,
    AlreadyApplied,
    AlreadyConfirmed,
    /// Foreign or another's.
    NotHeld,
    /// Nothing stands under the key.
    Absent,
}

/// What settling does to the claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SettleEffect {
    /// Confirmed, for the TTL from now.
    Confirm,
    Delete,
    /// The lease starts again.
    Extend,
    Nothing,
}

/// The settling table, for a claim that is the holder's own.
pub const fn settle(action: SettleAction, state: ClaimState) -> (SettleOutcome, SettleEffect) {
    use ClaimState::{Claimed, Confirmed, Pending};
    match (action, state) {
        (SettleAction::Confirm, Pending | Claimed) => {
            (SettleOutcome::Applied, SettleEffect::Confirm)
        }
        (SettleAction::Confirm, Confirmed) => {
            (SettleOutcome::AlreadyApplied, SettleEffect::Nothing)
        }
        (SettleAction::Release, Pending | Claimed) => {
            (SettleOutcome::Applied, SettleEffect::Delete)
        }
        (SettleAction::Release, Confirmed) => {
            (SettleOutcome::AlreadyConfirmed, SettleEffect::Nothing)
        }
        (SettleAction::Renew, Pending) => (SettleOutcome::Applied, SettleEffect::Extend),
        (SettleAction::Renew, Claimed) => (SettleOutcome::AlreadyApplied, SettleEffect::Nothing),
        (SettleAction::Renew, Confirmed) => {
            (SettleOutcome::AlreadyConfirmed, SettleEffect::Nothing)
        }
    }
}

/// How a key of a plan relates to the event's own bucket and cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Vicinity {
    pub same_bucket: bool,
    pub same_cell: bool,
}

impl Vicinity {
    pub const PRIMARY: Self = Self {
        same_bucket: true,
        same_cell: true,
    };

    const fn is_primary(self) -> bool {
        self.same_bucket && self.same_cell
    }
}

/// How far apart two events in different buckets or cells may be and still be near, exclusive.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Guards {
    pub time_ns: u64,
    pub space_m: f64,
}

/// Section 3 of the rule: near in time and near in space.
///
/// Whatever stands under the primary key is near. Under a neighbour's key only a record of this
/// version can be: anything else has no time to compare.
pub fn is_near(event: &Sighting, vicinity: Vicinity, guards: Guards, found: &Standing) -> bool {
    if vicinity.is_primary() {
        return true;
    }
    let Some(sighting) = found.sighting() else {
        return false;
    };
    let near_in_time = vicinity.same_bucket
        || event
            .distance_ns(sighting)
            .is_some_and(|distance_ns| distance_ns < guards.time_ns);
    let near_in_space = vicinity.same_cell
        || event
            .position
            .zip(sighting.position)
            .is_some_and(|(a, b)| a.distance_m(b) < guards.space_m);
    near_in_time && near_in_space
}

/// The claim that an event lost to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rival {
    pub standing: Standing,
    pub vicinity: Vicinity,
}

impl Rival {
    /// Smaller comes first: settled, then on the primary key, then nearest in time, then earlier.
    fn rank(&self, event: &Sighting) -> (bool, bool, u64, i64) {
        let sighting = self.standing.sighting();
        let time = sighting.and_then(|sighting| sighting.time);
        let distance_ns = sighting
            .and_then(|sighting| event.distance_ns(sighting))
            .unwrap_or(0);
        (
            !self.standing.is_settled(),
            !self.vicinity.is_primary(),
            distance_ns,
            time.map_or(i64::MIN, EventTime::unix_nanos),
        )
    }
}

/// As [`rival`], of an event whose plan has one key.
pub const fn only_rival(found: Standing) -> Rival {
    // Whatever stands under the primary key is near.
    Rival {
        standing: found,
        vicinity: Vicinity::PRIMARY,
    }
}

/// The claim that an event loses to, of those found in the order of its plan; `None`: it is the
/// first sighting.
pub fn rival(
    event: &Sighting,
    guards: Guards,
    found: impl IntoIterator<Item = (Vicinity, Standing)>,
) -> Option<Rival> {
    found
        .into_iter()
        .filter(|(vicinity, standing)| is_near(event, *vicinity, guards, standing))
        .map(|(vicinity, standing)| Rival { standing, vicinity })
        // Of equals `min_by_key` keeps the first: the order of the plan.
        .min_by_key(|rival| rival.rank(event))
}

/// What an event that a session suppressed leaves under its own key, on which `found` stands:
/// it was seen, so that it extends the session. `None`: nothing.
pub fn seen(event: &Sighting, rival: &Rival, found: Option<&Standing>) -> Option<Record> {
    if !event.is_session() || !rival.standing.is_settled() {
        return None;
    }
    match found {
        None => Some(Record {
            state: ClaimState::Confirmed,
            nonce: Nonce::NOBODY,
            sighting: *event,
        }),
        Some(Standing::Record(record)) if record.state.is_settled() => Some(Record {
            sighting: record.sighting.with(event),
            ..*record
        }),
        Some(Standing::Record(_) | Standing::Newer { .. } | Standing::Foreign) => None,
    }
}
