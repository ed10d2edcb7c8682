//! The key contract, version 1: from an event to the bytes of its store keys.
//!
//! | kind | material | digest |
//! | --- | --- | --- |
//! | transition | `device|fence|K|bucket` | XXH3-128, seed 0, unsigned decimal |
//! | with sequence | `device|fence|K|#sequence` or `…|#epoch.sequence` | the same |
//! | ping | `asset|start|cell`, start in whole seconds | BLAKE2b-128, lower-case hex |
//! | keyed | the event id | none |
//!
//! These are the bytes that the consumers of the seeds already write. `\` and `|` in ids are
//! escaped by a backslash, so that no two identities share material.

use blake2b_simd::{
    Params,
    many::{HashManyJob, MAX_DEGREE, hash_many},
};
use smallvec::SmallVec;
use xxhash_rust::xxh3::xxh3_64;

use super::{
    identity::{Identity, Sequence},
    place::Cell,
};

/// Keys under this prefix are dedupd's own.
pub const RESERVED_PREFIX: &str = "dedupd:";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Digest {
    /// XXH3-128: fast, not collision resistant.
    Xxh3,
    /// BLAKE2b with 16 bytes: for ids that an attacker may choose.
    Blake2b,
}

impl Digest {
    pub const fn name(self) -> &'static str {
        match self {
            Digest::Xxh3 => "xxh3",
            Digest::Blake2b => "blake2b",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// prefix + digest: what the seeds' consumers write.
    Plain,
    /// prefix + `{tag}:` + digest: all keys of a subject share a Redis Cluster slot.
    Tagged,
}

impl Layout {
    pub const fn name(self) -> &'static str {
        match self {
            Layout::Plain => "plain",
            Layout::Tagged => "tagged",
        }
    }
}

/// The prefixes that the seeds' consumers use, for the namespaces named after them.
pub fn default_prefix(namespace: &str) -> String {
    match namespace {
        "transitions" => "idem:".to_owned(),
        "pings" | "events" => "dedup:".to_owned(),
        other => format!("{other}:"),
    }
}

/// How a namespace's keys are written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyScheme {
    prefix: String,
    layout: Layout,
    transition_digest: Digest,
}

impl KeyScheme {
    /// An error says what is wrong with the prefix.
    pub fn new(
        prefix: String,
        layout: Layout,
        transition_digest: Digest,
    ) -> Result<Self, &'static str> {
        if !(1..=64).contains(&prefix.len()) || prefix.contains(['{', '}']) {
            return Err("must be 1 to 64 bytes without { or }");
        }
        if prefix.starts_with(RESERVED_PREFIX) || RESERVED_PREFIX.starts_with(&prefix) {
            return Err("must not begin with the reserved `dedupd:`, nor be a beginning of it");
        }
        Ok(Self {
            prefix,
            layout,
            transition_digest,
        })
    }

    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    pub const fn layout(&self) -> Layout {
        self.layout
    }

    pub const fn transition_digest(&self) -> Digest {
        self.transition_digest
    }

    /// Appends the store key of `name`, which belongs to the subject with `partition`.
    pub fn write_key(&self, name: KeyName<'_>, partition: Partition, out: &mut Vec<u8>) {
        out.extend_from_slice(self.prefix.as_bytes());
        match self.layout {
            Layout::Plain => {}
            Layout::Tagged => {
                out.push(b'{');
                push_hex(&partition.0.to_be_bytes(), out);
                out.extend_from_slice(b"}:");
            }
        }
        match name {
            KeyName::Decimal(digest) => push_decimal(digest, out),
            KeyName::Hex(digest) => push_hex(&digest.to_be_bytes(), out),
            KeyName::Id(id) => out.extend_from_slice(id),
        }
    }
}

/// The part of a store key behind prefix and tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum KeyName<'a> {
    Decimal(u128),
    Hex(u128),
    Id(&'a [u8]),
}

/// A key's name that owns nothing: ids lie in a [`Names`]. A request holds thousands of them, and
/// so digests are kept as words, which need no more than eight bytes' alignment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameRef {
    Decimal(DigestWords),
    Hex(DigestWords),
    Id(IdRef),
}

impl NameRef {
    pub const fn decimal(digest: u128) -> Self {
        Self::Decimal(DigestWords::new(digest))
    }

    pub const fn hex(digest: u128) -> Self {
        Self::Hex(DigestWords::new(digest))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DigestWords([u64; 2]);

impl DigestWords {
    const fn new(digest: u128) -> Self {
        Self([(digest >> 64) as u64, digest as u64])
    }

    const fn get(self) -> u128 {
        let Self([high, low]) = self;
        (high as u128) << 64 | low as u128
    }
}

/// Where an id lies in a [`Names`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdRef {
    start: u32,
    bytes: u32,
}

/// The ids of one request, end to end in one allocation.
#[derive(Clone, Debug, Default)]
pub struct Names {
    ids: Vec<u8>,
}

impl Names {
    pub fn with_capacity(bytes: usize) -> Self {
        Self {
            ids: Vec::with_capacity(bytes),
        }
    }

    pub fn intern(&mut self, name: KeyName<'_>) -> NameRef {
        match name {
            KeyName::Decimal(digest) => NameRef::decimal(digest),
            KeyName::Hex(digest) => NameRef::hex(digest),
            KeyName::Id(id) => NameRef::Id(self.intern_id(id)),
        }
    }

    /// # Panics
    ///
    /// If there are more than 4 GiB of ids: requests are far smaller.
    pub fn intern_id(&mut self, id: &[u8]) -> IdRef {
        let number = |bytes: usize| u32::try_from(bytes).expect("ids of less than 4 GiB");
        let start = number(self.ids.len());
        self.ids.extend_from_slice(id);
        IdRef {
            start,
            bytes: number(id.len()),
        }
    }

    /// The name behind a reference that this value gave out.
    pub fn resolve(&self, name: NameRef) -> KeyName<'_> {
        match name {
            NameRef::Decimal(digest) => KeyName::Decimal(digest.get()),
            NameRef::Hex(digest) => KeyName::Hex(digest.get()),
            NameRef::Id(id) => KeyName::Id(self.id(id)),
        }
    }

    pub fn id(&self, id: IdRef) -> &[u8] {
        let start = id.start as usize;
        &self.ids[start..start + id.bytes as usize]
    }
}

/// XXH3-64 of a subject's material: names the shard, the connection and the slot of all its keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Partition(pub u64);

impl Partition {
    /// Of a keyed event, whose id is the whole material of its subject.
    pub fn of_id(id: &[u8]) -> Self {
        Self(xxh3_64(id))
    }
}

/// Where an event lies in time, as its key says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bucket {
    pub index: i64,
    pub width_ns: u64,
}

impl Bucket {
    /// ⌊start / 1 s⌋; widths of pings are whole seconds. A bucket begins at most its width before the
    /// first time of i64 nanoseconds, and seconds are far fewer.
    const fn start_seconds(self) -> i64 {
        self.index * (self.width_ns / 1_000_000_000) as i64
    }
}

/// Writes key material into one buffer that is used again for every event.
#[derive(Debug)]
pub struct MaterialWriter {
    buffer: Vec<u8>,
    subject_end: usize,
}

impl Default for MaterialWriter {
    fn default() -> Self {
        const USUAL_BYTES: usize = 128;
        Self {
            buffer: Vec::with_capacity(USUAL_BYTES),
            subject_end: 0,
        }
    }
}

impl MaterialWriter {
    /// Writes the part of the material that names the subject, and digests it.
    pub fn subject(&mut self, identity: &Identity<'_>) -> Partition {
        let buffer = &mut self.buffer;
        buffer.clear();
        match *identity {
            Identity::Transition {
                device_id,
                fence_id,
                kind,
                sequence,
            } => {
                push_escaped(device_id, buffer);
                buffer.push(b'|');
                push_escaped(fence_id, buffer);
                buffer.extend_from_slice(&[b'|', kind.letter()]);
                if let Some(Sequence { epoch, number }) = sequence {
                    buffer.extend_from_slice(b"|#");
                    if epoch != 0 {
                        push_decimal(epoch, buffer);
                        buffer.push(b'.');
                    }
                    push_decimal(number, buffer);
                }
            }
            Identity::Ping { asset_id } => push_escaped(asset_id, buffer),
            Identity::Keyed { event_id } => buffer.extend_from_slice(event_id.as_bytes()),
        }
        self.subject_end = buffer.len();
        Partition(xxh3_64(buffer))
    }

    /// Goes on with the bucket of a transition; without one, it is of its sequence.
    pub fn transition(&mut self, bucket: Option<Bucket>) {
        self.buffer.truncate(self.subject_end);
        if let Some(bucket) = bucket {
            self.buffer.push(b'|');
            push_decimal(bucket.index, &mut self.buffer);
        }
    }

    /// Goes on with the bucket of a ping and its cell, if positions play a part.
    pub fn ping(&mut self, bucket: Bucket, cell: Option<Cell>) {
        self.buffer.truncate(self.subject_end);
        self.buffer.push(b'|');
        push_decimal(bucket.start_seconds(), &mut self.buffer);
        self.buffer.push(b'|');
        match cell {
            Some(cell) => push_short_hex(cell.index(), &mut self.buffer),
            None => self.buffer.push(b'-'),
        }
    }

    /// The material that was written last: UTF-8, as ids are.
    pub fn material(&self) -> &[u8] {
        &self.buffer
    }
}

/// Materials whose BLAKE2b digests are computed several at a time, side by side in a processor's
/// vectors: that takes half as long as one by one. Each comes with what it is for.
#[derive(Debug)]
pub struct Blake2bQueue<T> {
    params: Params,
    materials: Vec<u8>,
    /// Where each ends.
    ends: Vec<(usize, T)>,
}

impl<T> Default for Blake2bQueue<T> {
    fn default() -> Self {
        let mut params = Params::new();
        params.hash_length(size_of::<u128>());
        Self {
            params,
            materials: Vec::new(),
            ends: Vec::new(),
        }
    }
}

impl<T: Copy> Blake2bQueue<T> {
    /// What fits easily into a first-level cache.
    const FULL: usize = 16 * MAX_DEGREE;

    pub fn push(&mut self, material: &[u8], purpose: T) {
        self.materials.extend_from_slice(material);
        self.ends.push((self.materials.len(), purpose));
    }

    pub const fn is_full(&self) -> bool {
        self.ends.len() >= Self::FULL
    }

    /// Hands out the digest of every material, and forgets them.
    pub fn digest(&mut self, mut digested: impl FnMut(T, u128)) {
        let mut start = 0;
        for group in self.ends.chunks(MAX_DEGREE) {
            let mut jobs: SmallVec<[HashManyJob<'_>; MAX_DEGREE]> = SmallVec::new();
            for &(end, _) in group {
                jobs.push(HashManyJob::new(&self.params, &self.materials[start..end]));
                start = end;
            }
            hash_many(&mut jobs);
            for (&(_, purpose), job) in group.iter().zip(&jobs) {
                digested(purpose, number(job.to_hash().as_bytes()));
            }
        }
        self.materials.clear();
        self.ends.clear();
    }
}

/// The number that 16 bytes are, big-endian.
fn number(digest: &[u8]) -> u128 {
    digest
        .iter()
        .fold(0, |number, byte| number << 8 | u128::from(*byte))
}

fn push_escaped(id: &str, out: &mut Vec<u8>) {
    let bytes = id.as_bytes();
    if !bytes_have_special(bytes) {
        out.extend_from_slice(bytes);
        return;
    }
    for &byte in bytes {
        if is_special(byte) {
            out.push(b'\\');
        }
        out.push(byte);
    }
}

const fn is_special(byte: u8) -> bool {
    matches!(byte, b'\\' | b'|')
}

/// Eight bytes at a time: ids are short, and nearly none has one.
fn bytes_have_special(bytes: &[u8]) -> bool {
    let Some(last) = bytes.last_chunk::<8>() else {
        return bytes.iter().any(|&byte| is_special(byte));
    };
    let (words, _) = bytes.as_chunks::<8>();
    let found = words
        .iter()
        .fold(special_in(last), |found, word| found | special_in(word));
    found != 0
}

/// Not zero where one of the bytes is special: x − 1 borrows into the top bit of a byte that is
/// zero (Hacker's Delight, 6-1).
const fn special_in(word: &[u8; 8]) -> u64 {
    const ONES: u64 = u64::from_le_bytes([1; 8]);
    const fn zero_in(word: u64) -> u64 {
        word.wrapping_sub(ONES) & !word & ONES << 7
    }
    let word = u64::from_le_bytes(*word);
    zero_in(word ^ (ONES * b'\\' as u64)) | zero_in(word ^ (ONES * b'|' as u64))
}

fn push_decimal(number: impl itoa::Integer, out: &mut Vec<u8>) {
    out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}

const HEX_DIGITS: &[u8; 16] = b"0123456789abcdef";

fn push_hex(bytes: &[u8], out: &mut Vec<u8>) {
    out.extend(bytes.iter().flat_map(|byte| {
        [
            HEX_DIGITS[usize::from(byte >> 4)],
            HEX_DIGITS[usize::from(byte & 15)],
        ]
    }));
}

/// Hexadecimal without leading zeros.
fn push_short_hex(number: u64, out: &mut Vec<u8>) {
    const DIGITS: usize = 16;
    let zeros = number.leading_zeros() as usize / 4;
    let all: [u8; DIGITS] = std::array::from_fn(|digit| {
        HEX_DIGITS[(number >> (4 * (DIGITS - 1 - digit)) & 15) as usize]
    });
    out.extend_from_slice(&all[zeros.min(DIGITS - 1)..]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_hexadecimal_has_no_leading_zeros() {
        for number in [
            0,
            1,
            15,
            16,
            0x08c1_fa49_2600_7fff,
            u64::MAX,
            1 << 60,
            (1 << 60) - 1,
        ] {
            let mut out = Vec::new();
            push_short_hex(number, &mut out);
            assert_eq!(out, format!("{number:x}").into_bytes());
        }
    }

    /// Of empty ones, of those of several blocks, and whatever shares a group with whatever.
    #[test]
    fn digests_side_by_side_are_those_one_by_one() {
        let materials: Vec<Vec<u8>> = (0..200_usize)
            .map(|number| vec![number as u8; number * 37 % 300])
            .collect();
        for group in [1, 2, 3, 4, 5, 64, 200] {
            for materials in materials.chunks(group) {
                let mut queue = Blake2bQueue::default();
                for (place, material) in materials.iter().enumerate() {
                    queue.push(material, place);
                }
                let mut digested = 0;
                queue.digest(|place, digest| {
                    let alone = Params::new().hash_length(16).hash(&materials[place]);
                    assert_eq!(digest.to_be_bytes(), alone.as_bytes());
                    assert_eq!(place, digested);
                    digested += 1;
                });
                assert_eq!(digested, materials.len());
            }
        }
    }
}
