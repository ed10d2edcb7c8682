//! A key with its hash.

use std::hash::BuildHasher;

use hashbrown::DefaultHashBuilder;

use crate::{domain::key::KeyName, store::NamespaceId};

/// The hash is seeded at random, so that nobody can choose ids that collide.
#[derive(Clone, Copy, Debug)]
pub(super) struct Key<'a> {
    pub(super) namespace: NamespaceId,
    pub(super) name: Name<'a>,
    pub(super) hash: u32,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Name<'a> {
    Digest { words: [u64; 2], is_decimal: bool },
    Id(&'a [u8]),
}

impl<'a> Key<'a> {
    pub(super) fn new(
        namespace: NamespaceId,
        name: KeyName<'a>,
        hasher: &DefaultHashBuilder,
    ) -> Self {
        let of_digest = |digest: u128, is_decimal| Name::Digest {
            words: [(digest >> 64) as u64, digest as u64],
            is_decimal,
        };
        let name = match name {
            KeyName::Decimal(digest) => of_digest(digest, true),
            KeyName::Hex(digest) => of_digest(digest, false),
            KeyName::Id(id) => Name::Id(id),
        };
        let hash = match name {
            Name::Digest { words, .. } => hash_digest(namespace, words, hasher),
            Name::Id(id) => (hasher.hash_one((namespace, id)) >> 32) as u32,
        };
        Self {
            namespace,
            name,
            hash,
        }
    }
}

pub(super) fn hash_digest(
    namespace: NamespaceId,
    digest: [u64; 2],
    hasher: &DefaultHashBuilder,
) -> u32 {
    // Two words, without the length that an array's hash begins with.
    (hasher.hash_one((digest[0] ^ u64::from(namespace.0), digest[1])) >> 32) as u32
}
