//! A store whose claims are written to another one: they are read one after the other, and leave
//! when they were written.

use super::{
    MemoryStore, SHARDS,
    key::Key,
    shard::Reach,
    trace::WholeKey,
    words::{Claim, KeptKey},
};
use crate::{
    clock::Clock,
    domain::{
        claim::Record,
        key::{KeyName, NameRef, Names, Partition},
    },
    store::NamespaceId,
};

/// A claim as it stood when it was read.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Held {
    pub namespace: NamespaceId,
    pub partition: Partition,
    pub key: NameRef,
    pub record: Record,
    pub expires_at_ms: u64,
}

/// Where a walk over all claims has come to.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cursor {
    shard: usize,
    /// `None` before the shard's first claim.
    reach: Option<Reach>,
}

/// What became of a claim since it was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Since {
    /// Nothing: it has left the store now.
    Removed,
    /// It was settled or taken over, and stays.
    Changed,
    /// Its holder has it no more.
    Gone,
}

impl MemoryStore<WholeKey> {
    pub fn for_write_back(clock: Clock, max_bytes: u64) -> Self {
        Self::make(clock, max_bytes)
    }

    /// Reads up to `limit` live claims from the cursor on and forgets what has expired on the way;
    /// `None` in its place at the end. The tables may change meanwhile: claims keep their places but
    /// for those that are appended again, which this walk may read twice, or leave to the next one.
    pub fn read(
        &self,
        cursor: Cursor,
        limit: usize,
        wanted: impl Fn(NamespaceId) -> bool,
        names: &mut Names,
    ) -> (Vec<Held>, Option<Cursor>) {
        let now_ms = self.clock.monotonic_ms();
        let mut read = Vec::new();
        let mut at = cursor;
        while at.shard < SHARDS {
            let end = self.with_shard(Partition(at.shard as u64), |shard| {
                let mut reach = at.reach.unwrap_or_else(|| {
                    shard.sweep(usize::MAX, now_ms, &self.hasher);
                    shard.reach()
                });
                let end = shard.walk(&mut reach, |claim| {
                    if read.len() == limit {
                        return false;
                    }
                    if claim.meta().is_live(now_ms) && wanted(claim.namespace()) {
                        read.push(held(claim, names));
                    }
                    true
                });
                at.reach = Some(reach);
                end
            });
            if !end {
                return (read, Some(at));
            }
            at = Cursor {
                shard: at.shard + 1,
                reach: None,
            };
        }
        (read, None)
    }

    /// As the claim stands now, if the same holder has it.
    pub fn read_again(&self, held: &Held, names: &Names) -> Option<Held> {
        let now_ms = self.clock.monotonic_ms();
        let key = self.key_of(held, names);
        let (record, expires_at_ms) =
            self.with_shard(held.partition, |shard| shard.get_with_expiry(&key, now_ms))?;
        record.nonce.same_holder(held.record.nonce).then_some(Held {
            record,
            expires_at_ms,
            ..*held
        })
    }

    pub fn remove_unchanged(&self, held: &Held, names: &Names) -> Since {
        let now_ms = self.clock.monotonic_ms();
        let key = self.key_of(held, names);
        self.with_shard(held.partition, |shard| {
            match shard.get_with_expiry(&key, now_ms) {
                Some(now) if now == (held.record, held.expires_at_ms) => {
                    shard.remove(&key, now_ms);
                    Since::Removed
                }
                Some((record, _)) if record.nonce.same_holder(held.record.nonce) => Since::Changed,
                Some(_) | None => Since::Gone,
            }
        })
    }

    fn key_of<'n>(&self, held: &Held, names: &'n Names) -> Key<'n> {
        Key::new(held.namespace, names.resolve(held.key), &self.hasher)
    }
}

fn held(claim: Claim<'_>, names: &mut Names) -> Held {
    let id;
    let (name, partition) = match claim.key() {
        KeptKey::Id(kept) => {
            id = kept;
            (KeyName::Id(&id), Partition::of_id(&id))
        }
        KeptKey::Digest {
            digest,
            is_decimal,
            partition,
        } => {
            let name = if is_decimal {
                KeyName::Decimal(digest)
            } else {
                KeyName::Hex(digest)
            };
            // A store whose claims are written to another one keeps it.
            (name, partition.unwrap_or(Partition(0)))
        }
    };
    Held {
        namespace: claim.namespace(),
        partition,
        key: names.intern(name),
        record: claim.record(),
        expires_at_ms: claim.meta().expires_at_ms(),
    }
}
