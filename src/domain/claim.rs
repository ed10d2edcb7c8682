//! A claim: what a store keeps under a key, and which of several an event loses to.
//!
//! Layout of a record. Byte 0: version in the high nibble, state in the low one. Bytes 1 to 8:
//! nonce. Byte 9: flags. Then, big-endian, what the flags announce in this order: event time
//! (session: earliest and latest), content hash, latitude and longitude as f64. Times are offset
//! binary (t XOR 2⁶³), so that their bytes sort like the times.

use super::{place::Position, policy::Guards, time::EventTime};

const VERSION: u8 = 8;

const FLAG_TIME: u8 = 1;
const FLAG_CONTENT_HASH: u8 = 2;
const FLAG_POSITION: u8 = 4;
const FLAG_SESSION: u8 = 8;

const HEADER_BYTES: usize = 10;
/// Longest record: header, session times, hash, position.
pub const MAX_RECORD_BYTES: usize = HEADER_BYTES + 16 + 8 + 16;

/// Names one holding of a claim: seven bytes for the call and the event, then an attempt.
///
/// Settling and recognising one's own compare seven bytes; giving back compares all eight, so that
/// it never deletes what a retry of the call has adopted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Nonce([u8; 8]);

impl Nonce {
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

    pub const fn same_holder(self, other: Self) -> bool {
        self.holder() == other.holder()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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

/// What is known of the event that a claim was made for.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sighting {
    pub time: Option<EventTime>,
    pub content_hash: Option<u64>,
    pub position: Option<Position>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Record {
    pub state: ClaimState,
    pub nonce: Nonce,
    pub sighting: Sighting,
}

impl Record {
    pub fn encode(&self, out: &mut Vec<u8>) {
        let Sighting {
            time,
            content_hash,
            position,
        } = self.sighting;
        let flags = u8::from(time.is_some()) * FLAG_TIME
            | u8::from(content_hash.is_some()) * FLAG_CONTENT_HASH
            | u8::from(position.is_some()) * FLAG_POSITION;
        out.push(VERSION << 4 | self.state as u8);
        out.extend_from_slice(&self.nonce.to_bytes());
        out.push(flags);
        if let Some(time) = time {
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
    time.unix_nanos() as u64 ^ 1 << 63
}

/// What stands under a key.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Standing {
    Record(Record),
    /// A record of a later version: only its state and nonce are known.
    Newer {
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
            version if version > VERSION => return Standing::Newer { state, nonce },
            _ => return Standing::Foreign,
        }
        if flags & !(FLAG_TIME | FLAG_CONTENT_HASH | FLAG_POSITION | FLAG_SESSION) != 0
            || flags & FLAG_SESSION != 0
        {
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
            take(FLAG_CONTENT_HASH),
            take(FLAG_POSITION),
            take(FLAG_POSITION),
        );
        let (Some(time), Some(content_hash), Some(latitude), Some(longitude)) = fields else {
            return Standing::Foreign;
        };
        if !rest.is_empty() {
            return Standing::Foreign;
        }
        let position = latitude.zip(longitude).map(|(latitude, longitude)| {
            Position::from_stored(f64::from_bits(latitude), f64::from_bits(longitude))
        });
        let time = time.map(|bits| EventTime::from_unix_nanos((bits ^ 1 << 63) as i64));
        Standing::Record(Record {
            state,
            nonce,
            sighting: Sighting {
                time,
                content_hash,
                position,
            },
        })
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

    fn is_settled(&self) -> bool {
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
    /// Absent, foreign or another's.
    NotHeld,
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
            .time
            .zip(sighting.time)
            .is_some_and(|(a, b)| a.distance_ns(b) < guards.time_ns);
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
        let time = self.standing.sighting().and_then(|sighting| sighting.time);
        let distance_ns = event.time.zip(time).map_or(0, |(a, b)| a.distance_ns(b));
        (
            !self.standing.is_settled(),
            !self.vicinity.is_primary(),
            distance_ns,
            time.map_or(i64::MIN, EventTime::unix_nanos),
        )
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
