//! Writing back the claims of an outage.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use redis::Value;
use tokio::sync::oneshot;

use super::{
    RedisStore,
    collector::Collector,
    commands::Debt,
    error::from_text,
    script::{Script, ScriptCall},
    work::Work,
};
use crate::{
    domain::{claim::MAX_RECORD_BYTES, key::KeyScheme},
    store::{
        Reply, StoreError,
        write_back::{WriteBack, WriteBackItem, WrittenBack},
    },
};

impl RedisStore {
    pub(super) fn send_write_back(
        &self,
        batch: &Arc<WriteBack>,
    ) -> Reply<Vec<Result<WrittenBack, StoreError>>> {
        let items = batch.items.len();
        let Some(place) = self.queue.reserve(items) else {
            return Reply::ready(vec![Err(StoreError::Overloaded); items]);
        };
        let (sender, receiver) = oneshot::channel();
        let answered = Arc::<AtomicBool>::default();
        let is_answered = Arc::clone(&answered);
        let collector = Collector::new(items, Err(StoreError::Connection), move |outcomes| {
            is_answered.store(true, Ordering::Relaxed);
            drop(place);
            drop(sender.send(outcomes));
        });
        for (lane, items) in Self::split(batch.items.iter().map(|item| item.partition).enumerate())
        {
            let (batch, collector) = (Arc::clone(batch), Arc::clone(&collector));
            self.send(
                lane,
                Work::WriteBack {
                    batch,
                    items,
                    collector,
                },
            );
        }
        Reply::answered_by(answered, async move {
            receiver
                .await
                .unwrap_or_else(|_| vec![Err(StoreError::Connection); items])
        })
    }

    /// Twice: a write that was not answered may still be read from a dead connection.
    pub(super) fn send_withdrawal(&self, batch: &WriteBack, items: &[usize]) {
        let partitions = items.iter().map(|&item| batch.items[item].partition);
        for (lane, places) in Self::split(partitions.enumerate()) {
            let debts = places
                .into_iter()
                .map(|place| {
                    let item = &batch.items[items[place]];
                    let mut record = encoded(item);
                    record.truncate(Debt::HEAD_BYTES);
                    Debt::new(key(batch, item, &self.schemes), record)
                })
                .collect();
            self.send(lane, Work::GiveBack { debts, twice: true });
        }
    }
}

fn key(batch: &WriteBack, item: &WriteBackItem, schemes: &[KeyScheme]) -> Vec<u8> {
    let mut key = Vec::with_capacity(64);
    schemes[usize::from(item.namespace.0)].write_key(batch.key(item), item.partition, &mut key);
    key
}

fn encoded(item: &WriteBackItem) -> Vec<u8> {
    let mut record = Vec::with_capacity(MAX_RECORD_BYTES);
    item.record.encode(&mut record);
    record
}

pub(super) fn call(batch: &WriteBack, items: &[usize], schemes: &[KeyScheme]) -> ScriptCall {
    let mut call = ScriptCall::new(Script::WriteBack);
    for &index in items {
        let item = &batch.items[index];
        call.keys.push(key(batch, item, schemes));
        let hold_ms = item.hold.get().to_string().into_bytes();
        call.arguments.extend([encoded(item), hold_ms]);
    }
    call
}

pub(super) fn outcome(reply: &Value) -> Result<WrittenBack, StoreError> {
    match reply {
        Value::Int(0) => Ok(WrittenBack::Taken),
        Value::Int(1) => Ok(WrittenBack::Stands),
        Value::BulkString(text) => Err(from_text(&String::from_utf8_lossy(text))),
        _ => Err(StoreError::Protocol),
    }
}
