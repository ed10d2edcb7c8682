//! Gathers the results of one request from the lanes that share its work.

use std::{fmt, sync::Arc};

use parking_lot::Mutex;

use crate::store::StoreError;

/// One slot for each item; calls `done` once every part has been dropped.
pub(super) struct Collector<T> {
    gathered: Mutex<Gathered<T>>,
}

type Done<T> = Box<dyn FnOnce(Vec<Result<T, StoreError>>) + Send>;

struct Gathered<T> {
    results: Vec<Result<T, StoreError>>,
    done: Option<Done<T>>,
}

impl<T: Clone> Collector<T> {
    /// Slots that no part fills keep what `initial` says.
    pub(super) fn new(
        items: usize,
        initial: Result<T, StoreError>,
        done: impl FnOnce(Vec<Result<T, StoreError>>) + Send + 'static,
    ) -> Arc<Self> {
        Arc::new(Self {
            gathered: Mutex::new(Gathered {
                results: vec![initial; items],
                done: Some(Box::new(done)),
            }),
        })
    }

    pub(super) fn fill(&self, results: impl IntoIterator<Item = (usize, Result<T, StoreError>)>) {
        let mut gathered = self.gathered.lock();
        for (item, result) in results {
            gathered.results[item] = result;
        }
    }
}

/// The last lane that lets go of the collector hands the results over.
impl<T> Drop for Collector<T> {
    fn drop(&mut self) {
        let gathered = self.gathered.get_mut();
        if let Some(done) = gathered.done.take() {
            done(std::mem::take(&mut gathered.results));
        }
    }
}

impl<T> fmt::Debug for Collector<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Collector").finish_non_exhaustive()
    }
}
