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
    send,
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
        let all: Vec<usize> = (0..items).collect();
        let parts = self.split(&all, |item, key| {
            write_key(batch, item, &self.schemes, key);
        });
        for (lane, items) in parts {
            let work = Work::WriteBack {
                request: Arc::clone(batch),
                items,
                collector: Arc::clone(&collector),
            };
            send(lane.as_ref(), work);
        }
        Reply::answered_by(answered, async move {
            receiver
                .await
                .unwrap_or_else(|_| vec![Err(StoreError::Connection); items])
        })
    }

    /// Twice: a write that was not answered may still be read from a dead connection.
    pub(super) fn send_withdrawal(&self, batch: &WriteBack, items: &[usize]) {
        let debts: Vec<Debt> = items
            .iter()
            .map(|&item| {
                let mut key = Vec::with_capacity(64);
                write_key(batch, item, &self.schemes, &mut key);
                let mut head = encoded(&batch.items[item]);
                head.truncate(Debt::HEAD_BYTES);
                Debt::new(key, head)
            })
            .collect();
        self.give_debts_back(&debts, true);
    }
}

pub(super) fn write_key(batch: &WriteBack, item: usize, schemes: &[KeyScheme], key: &mut Vec<u8>) {
    let item = &batch.items[item];
    let scheme = &schemes[usize::from(item.namespace.0)];
    scheme.write_key(batch.key(item), item.partition, key);
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
        let mut key = Vec::with_capacity(64);
        write_key(batch, index, schemes, &mut key);
        call.keys.push(key);
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
