//! A claim as it is kept: a few words, of which the first says which others follow.
//!
//! | under a digest | under an id |
//! | --- | --- |
//! | meta | meta |
//! | digest, two words | hash and length of the id |
//! | nonce | nonce |
//! | event time | content hash, where there is one |
//! | content hash or latest time, position (two words), partition, where there are any | the id, filled up with zeros |

use hashbrown::DefaultHashBuilder;
use smallvec::SmallVec;

use super::key::{Key, Name, hash_digest};
use crate::{
    domain::{
        claim::{ClaimState, Nonce, Record, Sighting},
        key::Partition,
        place::Position,
        time::EventTime,
    },
    store::NamespaceId,
};

const WORD_BYTES: usize = 8;
/// Of a claim under a digest, without what it need not have.
const DIGEST_WORDS: usize = 5;
/// Of a claim under an id, without its content hash and the id.
const ID_WORDS: usize = 3;

/// Expiry in milliseconds (40 bits: 34 years), namespace (16), flags (6), state (2; 0: removed).
#[derive(Clone, Copy, Debug)]
pub(super) struct Meta(u64);

impl Meta {
    const STATE: u64 = 3;
    const HAS_HASH: u64 = 1 << 2;
    const HAS_POSITION: u64 = 1 << 3;
    const IS_SESSION: u64 = 1 << 4;
    const HAS_PARTITION: u64 = 1 << 5;
    const IS_DECIMAL: u64 = 1 << 6;
    const IS_ID: u64 = 1 << 7;
    const NAMESPACE_SHIFT: u32 = 8;
    const EXPIRY_SHIFT: u32 = 24;
    const MAX_EXPIRY_MS: u64 = (1 << 40) - 1;
    const OF_KEY: u64 = Self::IS_ID | 0xFFFF << Self::NAMESPACE_SHIFT;

    const fn of_key(namespace: NamespaceId, flags: u64) -> u64 {
        (namespace.0 as u64) << Self::NAMESPACE_SHIFT | flags
    }

    const fn with_state(self, state: ClaimState, expires_at_ms: u64) -> Self {
        let expires_at_ms = if expires_at_ms < Self::MAX_EXPIRY_MS {
            expires_at_ms
        } else {
            Self::MAX_EXPIRY_MS
        };
        let kept = self.0 & ((1 << Self::EXPIRY_SHIFT) - 1) & !Self::STATE;
        Self(expires_at_ms << Self::EXPIRY_SHIFT | kept | state as u64)
    }

    pub(super) const fn expires_at_ms(self) -> u64 {
        self.0 >> Self::EXPIRY_SHIFT
    }

    pub(super) const fn is_live(self, now_ms: u64) -> bool {
        self.expires_at_ms() > now_ms
    }

    const fn namespace(self) -> NamespaceId {
        NamespaceId((self.0 >> Self::NAMESPACE_SHIFT) as u16)
    }

    const fn state(self) -> ClaimState {
        match self.0 & Self::STATE {
            1 => ClaimState::Pending,
            2 => ClaimState::Claimed,
            _ => ClaimState::Confirmed,
        }
    }

    const fn has(self, flag: u64) -> bool {
        self.0 & flag != 0
    }

    /// Words of the claim before its id.
    const fn head_words(self) -> usize {
        if self.has(Self::IS_ID) {
            return ID_WORDS + self.has(Self::HAS_HASH) as usize;
        }
        DIGEST_WORDS
            + self.has(Self::HAS_HASH | Self::IS_SESSION) as usize
            + 2 * self.has(Self::HAS_POSITION) as usize
            + self.has(Self::HAS_PARTITION) as usize
    }

    const fn nonce_at(self) -> usize {
        if self.has(Self::IS_ID) { 2 } else { 3 }
    }
}

/// What is to be kept.
#[derive(Debug)]
pub(super) struct NewClaim<'a> {
    meta: Meta,
    key: &'a Key<'a>,
    nonce: Nonce,
    sighting: &'a Sighting,
    partition: Option<Partition>,
}

impl<'a> NewClaim<'a> {
    pub(super) fn new(
        key: &'a Key<'a>,
        partition: Option<Partition>,
        (state, nonce): (ClaimState, Nonce),
        sighting: &'a Sighting,
        expires_at_ms: u64,
    ) -> Self {
        let flag = |set: bool, flag: u64| if set { flag } else { 0 };
        // Under a session no hash is kept.
        let has_hash = sighting.content_hash.is_some() && !sighting.is_session();
        let flags = match key.name {
            Name::Digest { is_decimal, .. } => {
                flag(sighting.position.is_some(), Meta::HAS_POSITION)
                    | flag(sighting.is_session(), Meta::IS_SESSION)
                    | flag(partition.is_some(), Meta::HAS_PARTITION)
                    | flag(is_decimal, Meta::IS_DECIMAL)
            }
            Name::Id(_) => Meta::IS_ID,
        };
        let meta = Meta::of_key(key.namespace, flags | flag(has_hash, Meta::HAS_HASH));
        Self {
            meta: Meta(meta).with_state(state, expires_at_ms),
            key,
            nonce,
            sighting,
            partition,
        }
    }

    pub(super) const fn meta(&self) -> Meta {
        self.meta
    }

    pub(super) const fn words(&self) -> usize {
        let id_bytes = match self.key.name {
            Name::Digest { .. } => 0,
            Name::Id(id) => id.len(),
        };
        self.meta.head_words() + id_bytes.div_ceil(WORD_BYTES)
    }

    /// Gives out the words before the id, one after the other: what is collected first and copied
    /// then waits for all writes before it.
    fn write_head(&self, mut put: impl FnMut(u64)) {
        put(self.meta.0);
        match self.key.name {
            Name::Digest { words, .. } => words.into_iter().for_each(&mut put),
            Name::Id(id) => put(word_of_id(self.key.hash, id.len())),
        }
        put(word_of_nonce(self.nonce));
        let Sighting {
            time,
            latest,
            content_hash,
            position,
        } = self.sighting;
        if !self.meta.has(Meta::IS_ID) {
            // Every one has a time: only keyed events have none.
            put(time.map_or(0, word_of_time));
        }
        if self.meta.has(Meta::IS_SESSION) {
            put(latest.map_or(0, word_of_time));
        } else if let Some(content_hash) = *content_hash {
            put(content_hash);
        }
        if self.meta.has(Meta::HAS_POSITION)
            && let Some(position) = position
        {
            put(position.latitude_deg().to_bits());
            put(position.longitude_deg().to_bits());
        }
        if self.meta.has(Meta::HAS_PARTITION)
            && let Some(partition) = self.partition
        {
            put(partition.0);
        }
    }

    /// To as many words as it has.
    pub(super) fn write_to(&self, words: &mut [u64]) {
        let mut words = words.iter_mut();
        let mut put = |word| {
            if let Some(at) = words.next() {
                *at = word;
            }
        };
        self.write_head(&mut put);
        match self.key.name {
            Name::Digest { .. } => {}
            Name::Id(id) => words_of(id).for_each(put),
        }
    }

    /// Has the claim at the beginning of the words, which stands under the same key, as many?
    pub(super) const fn fits(&self, words: &[u64]) -> bool {
        Meta(words[0]).head_words() == self.meta.head_words()
    }
}

/// The words of a piece from a claim's first one on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Claim<'a>(&'a [u64]);

impl<'a> Claim<'a> {
    pub(super) const fn at(words: &'a [u64]) -> Self {
        Self(words)
    }

    pub(super) const fn meta(self) -> Meta {
        Meta(self.0[0])
    }

    pub(super) const fn namespace(self) -> NamespaceId {
        self.meta().namespace()
    }

    pub(super) const fn is_removed(self) -> bool {
        self.0[0] & Meta::STATE == 0
    }

    pub(super) const fn words(self) -> usize {
        let meta = self.meta();
        let id_bytes = if meta.has(Meta::IS_ID) {
            self.id_bytes()
        } else {
            0
        };
        meta.head_words() + id_bytes.div_ceil(WORD_BYTES)
    }

    /// The claim without the words behind it.
    pub(super) fn all(self) -> &'a [u64] {
        &self.0[..self.words()]
    }

    /// Of a claim under an id.
    const fn id_bytes(self) -> usize {
        self.0[1] as u32 as usize
    }

    pub(super) fn is(self, key: &Key<'_>) -> bool {
        let &[meta, first, second, ..] = self.0 else {
            return false;
        };
        let is_under = |flags| meta & Meta::OF_KEY == Meta::of_key(key.namespace, flags);
        match key.name {
            Name::Digest { words, .. } => [first, second] == words && is_under(0),
            Name::Id(id) => {
                first == word_of_id(key.hash, id.len())
                    && is_under(Meta::IS_ID)
                    && words_of(id).eq(self.id_words())
            }
        }
    }

    fn id_words(self) -> impl Iterator<Item = u64> {
        let words = self.0.get(self.meta().head_words()..).unwrap_or_default();
        words
            .iter()
            .copied()
            .take(self.id_bytes().div_ceil(WORD_BYTES))
    }

    /// Of the key that the claim stands under.
    pub(super) fn hash(self, hasher: &DefaultHashBuilder) -> u32 {
        if self.meta().has(Meta::IS_ID) {
            (self.0[1] >> 32) as u32
        } else {
            hash_digest(self.namespace(), [self.0[1], self.0[2]], hasher)
        }
    }

    pub(super) fn record(self) -> Record {
        let meta = self.meta();
        let (mut time, mut latest, mut position) = (None, None, None);
        let mut rest = self.0[meta.nonce_at() + 1..].iter().copied();
        let mut next = || rest.next().unwrap_or_default();
        if !meta.has(Meta::IS_ID) {
            time = Some(time_of_word(next()));
        }
        let content_hash = meta.has(Meta::HAS_HASH).then(&mut next);
        if meta.has(Meta::IS_SESSION) {
            latest = Some(time_of_word(next()));
        }
        if meta.has(Meta::HAS_POSITION) {
            let [latitude, longitude] = [next(), next()].map(f64::from_bits);
            position = Some(Position::from_stored(latitude, longitude));
        }
        Record {
            state: meta.state(),
            nonce: Nonce::from_bytes(self.0[meta.nonce_at()].to_be_bytes()),
            sighting: Sighting {
                time,
                latest,
                content_hash,
                position,
            },
        }
    }

    pub(super) fn key(self) -> KeptKey {
        let meta = self.meta();
        if meta.has(Meta::IS_ID) {
            let mut id: SmallVec<[u8; 64]> = self.id_words().flat_map(u64::to_le_bytes).collect();
            id.truncate(self.id_bytes());
            return KeptKey::Id(id);
        }
        let digest = u128::from(self.0[1]) << 64 | u128::from(self.0[2]);
        let partition = self.0[meta.head_words() - 1];
        KeptKey::Digest {
            digest,
            is_decimal: meta.has(Meta::IS_DECIMAL),
            partition: meta
                .has(Meta::HAS_PARTITION)
                .then_some(Partition(partition)),
        }
    }
}

/// A key as a claim knows it.
#[derive(Debug)]
pub(super) enum KeptKey {
    Digest {
        digest: u128,
        is_decimal: bool,
        partition: Option<Partition>,
    },
    Id(SmallVec<[u8; 64]>),
}

/// Another holder or another state; the sighting stays.
pub(super) fn restate(words: &mut [u64], state: ClaimState, nonce: Nonce, expires_at_ms: u64) {
    let meta = Meta(words[0]);
    words[0] = meta.with_state(state, expires_at_ms).0;
    words[meta.nonce_at()] = word_of_nonce(nonce);
}

pub(super) const fn mark_removed(words: &mut [u64]) {
    words[0] &= !Meta::STATE;
}

const fn word_of_nonce(nonce: Nonce) -> u64 {
    u64::from_be_bytes(nonce.to_bytes())
}

const fn word_of_time(time: EventTime) -> u64 {
    time.unix_nanos() as u64
}

const fn time_of_word(word: u64) -> EventTime {
    EventTime::from_unix_nanos(word as i64)
}

const fn word_of_id(hash: u32, bytes: usize) -> u64 {
    (hash as u64) << 32 | bytes as u64
}

fn words_of(id: &[u8]) -> impl Iterator<Item = u64> {
    let (whole, rest) = id.as_chunks::<WORD_BYTES>();
    let last = (!rest.is_empty()).then(|| match id.last_chunk::<WORD_BYTES>() {
        // A load and a shift instead of a copy whose length is not known.
        Some(end) => u64::from_le_bytes(*end) >> (8 * (WORD_BYTES - rest.len())),
        None => rest
            .iter()
            .rfold(0, |word, byte| word << 8 | u64::from(*byte)),
    });
    whole
        .iter()
        .map(|word| u64::from_le_bytes(*word))
        .chain(last)
}
