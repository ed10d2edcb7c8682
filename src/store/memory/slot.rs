//! What is kept of a claim. State, flags, namespace and expiry are packed into one word.

use super::pieces::Expires;
use crate::{
    domain::{
        claim::{ClaimState, Nonce, Record, Sighting},
        place::Position,
        time::EventTime,
    },
    store::NamespaceId,
};

/// Expiry in milliseconds (43 bits: 278 years), namespace (16), flags (3), state (2).
#[derive(Clone, Copy, Debug)]
pub(super) struct Meta(u64);

impl Meta {
    const HAS_HASH: u64 = 1 << 2;
    const HAS_POSITION: u64 = 1 << 3;
    const IS_SESSION: u64 = 1 << 4;
    const MAX_EXPIRY_MS: u64 = (1 << 43) - 1;

    fn new(namespace: NamespaceId, record: &Record, expires_at_ms: u64) -> Self {
        let sighting = &record.sighting;
        let flag = |set: bool, flag: u64| if set { flag } else { 0 };
        Self(
            (expires_at_ms.min(Self::MAX_EXPIRY_MS) << 21)
                | (u64::from(namespace.0) << 5)
                | flag(sighting.position.is_some(), Self::HAS_POSITION)
                | flag(sighting.content_hash.is_some(), Self::HAS_HASH)
                | flag(sighting.is_session(), Self::IS_SESSION)
                | record.state as u64,
        )
    }

    pub(super) const fn expires_at_ms(self) -> u64 {
        self.0 >> 21
    }

    pub(super) const fn is_live(self, now_ms: u64) -> bool {
        self.expires_at_ms() > now_ms
    }

    pub(super) const fn namespace(self) -> NamespaceId {
        NamespaceId((self.0 >> 5) as u16)
    }

    const fn state(self) -> ClaimState {
        match self.0 & 3 {
            1 => ClaimState::Pending,
            2 => ClaimState::Claimed,
            _ => ClaimState::Confirmed,
        }
    }

    const fn has(self, flag: u64) -> bool {
        self.0 & flag != 0
    }
}

/// What a sighting knows beside its time.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Detail {
    /// Under a session, which keeps no hash, the latest time.
    hash_or_latest: u64,
    latitude_deg: f64,
    longitude_deg: f64,
}

/// Whether a slot has room for a [`Detail`].
pub(super) trait Details: Copy {
    fn of(sighting: &Sighting) -> Self;
    fn detail(self) -> Detail;
}

impl Details for () {
    fn of(_: &Sighting) -> Self {}

    fn detail(self) -> Detail {
        Detail::default()
    }
}

impl Details for Detail {
    fn of(sighting: &Sighting) -> Self {
        let latest = sighting.latest.map(|latest| latest.unix_nanos() as u64);
        let degrees = |read: fn(Position) -> f64| sighting.position.map_or(0.0, read);
        Self {
            hash_or_latest: sighting.content_hash.or(latest).unwrap_or(0),
            latitude_deg: degrees(Position::latitude_deg),
            longitude_deg: degrees(Position::longitude_deg),
        }
    }

    fn detail(self) -> Detail {
        self
    }
}

/// A claim under a digest. Every one has a time: only keyed events have none.
#[derive(Debug)]
pub(super) struct DigestSlot<T, D> {
    pub(super) trace: T,
    pub(super) digest: [u64; 2],
    pub(super) meta: Meta,
    nonce: u64,
    time_unix_nanos: i64,
    details: D,
}

/// Of a transition without content hash.
pub(super) type Narrow<T> = DigestSlot<T, ()>;
pub(super) type Wide<T> = DigestSlot<T, Detail>;

const _: () = assert!(size_of::<Narrow<()>>() == 40 && size_of::<Wide<()>>() == 64);

impl<T, D: Details> DigestSlot<T, D> {
    pub(super) fn new(
        trace: T,
        namespace: NamespaceId,
        digest: [u64; 2],
        record: &Record,
        expires_at_ms: u64,
    ) -> Self {
        let sighting = &record.sighting;
        Self {
            trace,
            digest,
            meta: Meta::new(namespace, record, expires_at_ms),
            nonce: u64::from_be_bytes(record.nonce.to_bytes()),
            time_unix_nanos: sighting.time.map_or(0, EventTime::unix_nanos),
            details: D::of(sighting),
        }
    }

    pub(super) fn is(&self, namespace: NamespaceId, digest: [u64; 2]) -> bool {
        self.digest == digest && self.meta.namespace() == namespace
    }

    /// Another holder or another state; the sighting stays.
    pub(super) fn restate(&mut self, record: &Record, expires_at_ms: u64) {
        self.meta = Meta::new(self.meta.namespace(), record, expires_at_ms);
        self.nonce = u64::from_be_bytes(record.nonce.to_bytes());
    }

    pub(super) fn record(&self) -> Record {
        let detail = self.details.detail();
        let [hash, session, position] =
            [Meta::HAS_HASH, Meta::IS_SESSION, Meta::HAS_POSITION].map(|flag| self.meta.has(flag));
        let latest = || EventTime::from_unix_nanos(detail.hash_or_latest as i64);
        Record {
            state: self.meta.state(),
            nonce: Nonce::from_bytes(self.nonce.to_be_bytes()),
            sighting: Sighting {
                time: Some(EventTime::from_unix_nanos(self.time_unix_nanos)),
                latest: session.then(latest),
                content_hash: hash.then_some(detail.hash_or_latest),
                position: position
                    .then(|| Position::from_stored(detail.latitude_deg, detail.longitude_deg)),
            },
        }
    }
}

/// A keyed claim.
#[derive(Debug)]
pub(super) struct IdSlot {
    pub(super) id: Box<[u8]>,
    pub(super) meta: Meta,
    nonce: u64,
    content_hash: u64,
}

impl IdSlot {
    pub(super) fn new(
        namespace: NamespaceId,
        id: &[u8],
        record: &Record,
        expires_at_ms: u64,
    ) -> Self {
        Self {
            id: id.into(),
            meta: Meta::new(namespace, record, expires_at_ms),
            nonce: u64::from_be_bytes(record.nonce.to_bytes()),
            content_hash: record.sighting.content_hash.unwrap_or(0),
        }
    }

    pub(super) fn is(&self, namespace: NamespaceId, id: &[u8]) -> bool {
        *self.id == *id && self.meta.namespace() == namespace
    }

    pub(super) fn overwrite(&mut self, record: &Record, expires_at_ms: u64) {
        self.meta = Meta::new(self.meta.namespace(), record, expires_at_ms);
        self.nonce = u64::from_be_bytes(record.nonce.to_bytes());
        self.content_hash = record.sighting.content_hash.unwrap_or(0);
    }

    pub(super) fn record(&self) -> Record {
        let hash = self.meta.has(Meta::HAS_HASH);
        Record {
            state: self.meta.state(),
            nonce: Nonce::from_bytes(self.nonce.to_be_bytes()),
            sighting: Sighting {
                content_hash: hash.then_some(self.content_hash),
                ..Sighting::default()
            },
        }
    }
}

impl<T, D> Expires for DigestSlot<T, D> {
    fn expires_at_ms(&self) -> u64 {
        self.meta.expires_at_ms()
    }
}

impl Expires for IdSlot {
    fn expires_at_ms(&self) -> u64 {
        self.meta.expires_at_ms()
    }
}
