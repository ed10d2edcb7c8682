//! What a store keeps of a key beside the digest.

use std::fmt;

use crate::domain::key::Partition;

pub trait Trace: fmt::Debug + Send + Sync + 'static {
    fn of(partition: Partition) -> Option<Partition>;
}

/// Nothing: the claims stay in this store.
impl Trace for () {
    fn of(_: Partition) -> Option<Partition> {
        None
    }
}

/// All that it takes to write the claim to another store.
#[derive(Debug)]
pub struct WholeKey;

impl Trace for WholeKey {
    fn of(partition: Partition) -> Option<Partition> {
        Some(partition)
    }
}
