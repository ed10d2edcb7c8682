//! What a slot keeps of its key beside the digest.

use std::fmt;

use crate::domain::key::{KeyName, Partition};

pub trait Trace: Copy + fmt::Debug + Send + Sync + 'static {
    fn of(name: KeyName<'_>, partition: Partition) -> Self;
}

/// Nothing: the claims stay in this store.
impl Trace for () {
    fn of(_: KeyName<'_>, _: Partition) -> Self {}
}

/// All that it takes to write the claim to another store.
#[derive(Clone, Copy, Debug)]
pub struct WholeKey {
    partition: Partition,
    is_decimal: bool,
}

impl Trace for WholeKey {
    fn of(name: KeyName<'_>, partition: Partition) -> Self {
        let is_decimal = match name {
            KeyName::Decimal(_) => true,
            KeyName::Hex(_) | KeyName::Id(_) => false,
        };
        Self {
            partition,
            is_decimal,
        }
    }
}

impl WholeKey {
    pub(super) const fn partition(self) -> Partition {
        self.partition
    }

    pub(super) const fn name(self, [high, low]: [u64; 2]) -> KeyName<'static> {
        let digest = (high as u128) << 64 | low as u128;
        if self.is_decimal {
            KeyName::Decimal(digest)
        } else {
            KeyName::Hex(digest)
        }
    }
}
