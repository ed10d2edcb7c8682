//! Errors of the store by kind.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::store::StoreError;

/// Results that a store error kept from being decided, since the process started.
#[derive(Debug)]
pub struct StoreErrors([AtomicU64; StoreError::ALL.len()]);

impl Default for StoreErrors {
    fn default() -> Self {
        Self([const { AtomicU64::new(0) }; StoreError::ALL.len()])
    }
}

impl StoreErrors {
    pub fn count(&self, error: StoreError) {
        self.0[error as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub fn by_kind(&self) -> impl Iterator<Item = (StoreError, u64)> {
        StoreError::ALL
            .into_iter()
            .zip(self.0.iter().map(|count| count.load(Ordering::Relaxed)))
    }
}
