//! Keys that would stay for ever: an event that loses to one would be suppressed for ever.

use super::{HoldMs, NamespaceId};
use crate::domain::key::{NameRef, Names, Partition};

/// Keys that an event lost to, to be given a TTL where they have none.
#[derive(Debug, Default)]
pub struct HealRequest {
    pub items: Vec<HealItem>,
    pub names: Names,
}

#[derive(Clone, Copy, Debug)]
pub struct HealItem {
    pub namespace: NamespaceId,
    pub partition: Partition,
    pub key: NameRef,
    /// The TTL that it is given.
    pub hold: HoldMs,
}

/// What became of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Healed {
    /// It expires anyway, or is gone.
    Sound,
    /// It would have stayed for ever, and has a TTL now.
    Healed,
    /// It stays for ever, and may be somebody else's: it was not touched.
    Left,
}
