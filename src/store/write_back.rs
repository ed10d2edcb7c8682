//! Claims that were made elsewhere during an outage, to be written to the shared store.

use super::{HoldMs, NamespaceId};
use crate::domain::{
    claim::Record,
    key::{KeyName, NameRef, Names, Partition},
};

/// Of any namespaces. Where a key comes twice the last one counts.
#[derive(Debug, Default)]
pub struct WriteBack {
    pub items: Vec<WriteBackItem>,
    pub names: Names,
}

#[derive(Clone, Copy, Debug)]
pub struct WriteBackItem {
    pub namespace: NamespaceId,
    pub partition: Partition,
    pub key: NameRef,
    /// As it is to stand there.
    pub record: Record,
    /// What is left of its time.
    pub hold: HoldMs,
}

impl WriteBack {
    pub fn key(&self, item: &WriteBackItem) -> KeyName<'_> {
        self.names.resolve(item.key)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WrittenBack {
    /// It stands there, or what the same holder has there says more.
    Stands,
    /// Another's claim or a foreign value stands there and was left alone.
    Taken,
}
