//! Redis in trouble: what callers are told meanwhile, and what is left behind.
//!
//! The real binary, a real redis-server and a faulty wire between them. Times are those of the
//! documents plus [`SLACK`], which is for the machine and not for the service.

mod away;
mod cancelled;
mod clock;
mod errors;
mod fake;
mod hung;
mod late;
mod local;
mod order;
mod overload;
mod replies;
pub(crate) mod world;

use std::time::Duration;

/// What a busy machine may add to a time.
const SLACK: Duration = Duration::from_secs(3);
