//! A store whose claims are written to another one: they are read one after the other, and leave
//! when they were written.

use super::{Key, MemoryStore, SHARDS, trace::WholeKey};
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
    /// Downwards, so that what takes the place of a claim that has left was read before.
    slots_left: Option<usize>,
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
    /// `None` in its place at the end. The tables may change meanwhile: what a walk misses the next
    /// one finds.
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
                let mut left = at.slots_left.unwrap_or(usize::MAX).min(shard.len());
                while left > 0 && read.len() < limit {
                    left -= 1;
                    let Some(held) = shard.live(left, now_ms) else {
                        shard.clear_if_expired(left, now_ms, &self.hasher);
                        continue;
                    };
                    if wanted(held.namespace) {
                        read.push(Held {
                            namespace: held.namespace,
                            partition: held.partition,
                            key: names.intern(held.name),
                            record: held.record,
                            expires_at_ms: held.expires_at_ms,
                        });
                    }
                }
                at.slots_left = Some(left);
                left == 0
            });
            if !end {
                return (read, Some(at));
            }
            at = Cursor {
                shard: at.shard + 1,
                slots_left: None,
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
                    shard.remove(&key, &self.hasher);
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

/// A claim in its slot.
#[derive(Debug)]
pub(super) struct InSlot<'a> {
    pub(super) namespace: NamespaceId,
    pub(super) partition: Partition,
    pub(super) name: KeyName<'a>,
    pub(super) record: Record,
    pub(super) expires_at_ms: u64,
}
