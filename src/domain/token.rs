//! A claim token: what a caller hands back to settle its claim.
//!
//! Stateless, so that any instance can settle it. It names namespace and digest (or id), never a
//! whole store key: a forged one reaches nothing outside its namespace's prefix, and its nonce must
//! match the record.
//!
//! Layout: version and form (1 byte), XXH3-64 of the namespace's name (8), nonce (8), then for a
//! digest the partition (8) and the digest (16), for a keyed event its id (1 to 512). The token of a
//! claim in an instance's embedded store says so in the form, and has the instance's mark in place of
//! the lower half of the namespace.

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
/// Beside the form: the claim was made in an embedded store during an outage.
const FLAG_LOCAL: u8 = 8;

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

    /// What a local token has room for.
    pub const fn in_local_tokens(self) -> Self {
        Self(self.0 >> 32 << 32)
    }
}

/// Tells instances, and lives of one, apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InstanceMark(pub u32);

/// Where the claim was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    Shared,
    /// In the embedded store of an instance, while the shared one was away.
    Local(InstanceMark),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Token<'a> {
    /// Of a local token [`NamespaceTag::in_local_tokens`].
    pub namespace: NamespaceTag,
    pub origin: Origin,
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
        let (flag, namespace) = match self.origin {
            Origin::Shared => (0, self.namespace.0),
            Origin::Local(mark) => (
                FLAG_LOCAL,
                self.namespace.in_local_tokens().0 | u64::from(mark.0),
            ),
        };
        // Put together before it is appended: the vector asks for room each time.
        let mut header = [VERSION << 4 | flag | form; HEADER_BYTES];
        header[1..9].copy_from_slice(&namespace.to_be_bytes());
        header[9..].copy_from_slice(&self.nonce.to_bytes());
        out.extend_from_slice(&header);
        match self.key {
            KeyName::Decimal(digest) | KeyName::Hex(digest) => {
                let mut key = [0; DIGEST_BYTES];
                key[..8].copy_from_slice(&self.partition.0.to_be_bytes());
                key[8..].copy_from_slice(&digest.to_be_bytes());
                out.extend_from_slice(&key);
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
        let namespace = NamespaceTag(u64::from_be_bytes(*namespace));
        let (namespace, origin) = if head & FLAG_LOCAL == 0 {
            (namespace, Origin::Shared)
        } else {
            let mark = InstanceMark(namespace.0 as u32);
            (namespace.in_local_tokens(), Origin::Local(mark))
        };
        let (partition, key) = match head & 15 & !FLAG_LOCAL {
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
                (Partition::of_id(rest), KeyName::Id(rest))
            }
            _ => return None,
        };
        Some(Self {
            namespace,
            origin,
            nonce: Nonce::from_bytes(*nonce),
            partition,
            key,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_read_as_it_was_written_wherever_its_claim_was_made() {
        let name = NamespaceName::new("orders").expect("a name");
        let tag = NamespaceTag::new(&name);
        let id = b"order-4711";
        let keys = [
            (KeyName::Decimal(7 << 90), Partition(9)),
            (KeyName::Hex(u128::MAX), Partition(u64::MAX)),
            (KeyName::Id(id), Partition(xxh3_64(id))),
        ];
        let origins = [
            (Origin::Shared, tag),
            (Origin::Local(InstanceMark(0)), tag.in_local_tokens()),
            (Origin::Local(InstanceMark(u32::MAX)), tag.in_local_tokens()),
        ];
        for (key, partition) in keys {
            for (origin, namespace) in origins {
                let nonce = Nonce::from_bytes([1, 2, 3, 4, 5, 6, 7, 8]);
                let token = Token {
                    namespace: tag,
                    origin,
                    nonce,
                    partition,
                    key,
                };
                let mut bytes = Vec::new();
                token.encode(&mut bytes);
                assert_eq!(bytes.len(), Token::encoded_bytes(&key));
                let read = Token { namespace, ..token };
                assert_eq!(Token::decode(&bytes), Some(read));
            }
        }
    }
}
