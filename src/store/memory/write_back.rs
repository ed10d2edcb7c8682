//! Taking claims that were made elsewhere.

use super::{MemoryStore, Trace, key::Key, later, words::NewClaim};
use crate::{
    domain::{
        claim::{Record, Standing},
        reconcile::{Reconciled, reconcile},
    },
    store::{
        HoldMs, StoreError,
        write_back::{WriteBack, WriteBackItem, WrittenBack},
    },
};

impl<T: Trace> MemoryStore<T> {
    pub(super) fn write_one_back(
        &self,
        batch: &WriteBack,
        item: &WriteBackItem,
    ) -> Result<WrittenBack, StoreError> {
        let now_ms = self.clock.monotonic_ms();
        let key = Key::new(item.namespace, batch.key(item), &self.hasher);
        self.with_shard(item.partition, |shard| {
            let seen = shard.find(&key, now_ms);
            let found = seen.and_then(|seen| shard.record_and_expiry(seen));
            let standing = found.map(|(record, _)| Standing::Record(record));
            let mut put = |record: &Record, hold: HoldMs| {
                let claim = NewClaim::new(
                    &key,
                    T::of(item.partition),
                    (record.state, record.nonce),
                    &record.sighting,
                    later(now_ms, hold),
                );
                self.put(shard, &key, seen, &claim, now_ms)
            };
            match reconcile(standing.as_ref(), &item.record) {
                Reconciled::Write(record) => put(&record, item.hold)?,
                Reconciled::Join(record) => {
                    let left_ms = found.map_or(0, |(_, expires_at_ms)| expires_at_ms - now_ms);
                    put(&record, item.hold.max(HoldMs(left_ms)))?;
                }
                Reconciled::Leave => {}
                Reconciled::Taken => return Ok(WrittenBack::Taken),
            }
            Ok(WrittenBack::Stands)
        })
    }

    pub(super) fn withdraw_one(&self, batch: &WriteBack, item: &WriteBackItem) {
        let now_ms = self.clock.monotonic_ms();
        let key = Key::new(item.namespace, batch.key(item), &self.hasher);
        let WriteBackItem { record, .. } = item;
        self.with_shard(item.partition, |shard| {
            let found = shard.get(&key, now_ms);
            if found.is_some_and(|found| {
                found.nonce == record.nonce && found.state == record.state && found.saw_one_event()
            }) {
                shard.remove(&key, now_ms);
            }
        });
    }
}
