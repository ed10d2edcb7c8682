//! A claim token: what a caller hands back to settle its claim.
//!
//! Stateless, so that any instance can settle it. It names namespace and digest (or id), never a
//! whole store key: a forged one reaches nothing outside its namespace's prefix, and its nonce must
//! match the record.
//!
//! Layout: version and form (1 byte), XXH3-64 of the namespace's name (8), nonce (8), then for a
//! digest the partition (8) and the digest (16), for a keyed event its id (1 to 512).

use xxhash_rust::xxh3::xxh3_64;

use super::{
    claim::Nonce,
    identity::MAX_ID_BYTES,
    key::{KeyName, Partition},
    policy::NamespaceName,
};

const VERSION: u8 = 1;
const FORM_DECIMAL: u8 = 0;
const FORM_HEX: u8 = 1;
const FORM_ID: u8 = 2;

const HEADER_BYTES: usize = 1 + 8 + 8;
const DIGEST_BYTES: usize = 8 + 16;

/// Longest token. The API promises 600.
pub const MAX_TOKEN_BYTES: usize = HEADER_BYTES + MAX_ID_BYTES;

/// Names a namespace in tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct NamespaceTag(u64);

impl NamespaceTag {
    pub fn new(name: &NamespaceName) -> Self {
        Self(xxh3_64(name.as_str().as_bytes()))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Token<'a> {
    pub namespace: NamespaceTag,
    pub nonce: Nonce,
    pub partition: Partition,
    pub key: KeyName<'a>,
}

impl<'a> Token<'a> {
    /// Bytes of the token for a key of `key`'s form.
    pub const fn encoded_bytes(key: &KeyName<'_>) -> usize {
        match key {
            KeyName::Decimal(_) | KeyName::Hex(_) => HEADER_BYTES + DIGEST_BYTES,
            KeyName::Id(id) => HEADER_BYTES + id.len(),
        }
    }

    pub fn encode(&self, out: &mut Vec<u8>) {
        let form = match self.key {
            KeyName::Decimal(_) => FORM_DECIMAL,
            KeyName::Hex(_) => FORM_HEX,
            KeyName::Id(_) => FORM_ID,
        };
        out.push(VERSION << 4 | form);
        out.extend_from_slice(&self.namespace.0.to_be_bytes());
        out.extend_from_slice(&self.nonce.to_bytes());
        match self.key {
            KeyName::Decimal(digest) | KeyName::Hex(digest) => {
                out.extend_from_slice(&self.partition.0.to_be_bytes());
                out.extend_from_slice(&digest.to_be_bytes());
            }
            KeyName::Id(id) => out.extend_from_slice(id),
        }
    }

    /// `None`: not a token of this version.
    pub fn decode(bytes: &'a [u8]) -> Option<Self> {
        let (&[head], rest) = bytes.split_first_chunk::<1>()?;
        let (namespace, rest) = rest.split_first_chunk::<8>()?;
        let (nonce, rest) = rest.split_first_chunk::<8>()?;
        if head >> 4 != VERSION {
            return None;
        }
        let (partition, key) = match head & 15 {
            form @ (FORM_DECIMAL | FORM_HEX) => {
                let (partition, rest) = rest.split_first_chunk::<8>()?;
                let digest = u128::from_be_bytes(rest.try_into().ok()?);
                let key = if form == FORM_DECIMAL {
                    KeyName::Decimal(digest)
                } else {
                    KeyName::Hex(digest)
                };
                (Partition(u64::from_be_bytes(*partition)), key)
            }
            FORM_ID if (1..=MAX_ID_BYTES).contains(&rest.len()) => {
                // The id is the whole material of its subject.
                (Partition(xxh3_64(rest)), KeyName::Id(rest))
            }
            _ => return None,
        };
        Some(Self {
            namespace: NamespaceTag(u64::from_be_bytes(*namespace)),
            nonce: Nonce::from_bytes(*nonce),
            partition,
            key,
        })
    }
}
