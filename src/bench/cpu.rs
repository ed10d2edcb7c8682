//! CPU time by the kernel's accounting.

use std::{fs, path::Path, process};

use super::load::Watched;

#[derive(Clone, Debug, thiserror::Error)]
#[error("no CPU time of process {pid}: {why}; is it running here, on Linux?")]
pub struct NoCpuTime {
    pid: u32,
    why: String,
}

/// Nanoseconds on a CPU so far.
#[derive(Clone, Copy, Debug)]
pub struct CpuTimes {
    /// This process; `None` where the kernel does not tell.
    pub client_ns: Option<u64>,
    pub server_ns: Option<u64>,
    pub redis_ns: Option<u64>,
}

impl CpuTimes {
    pub fn now(watched: &Watched) -> Result<Self, NoCpuTime> {
        let redis = watched.redis_pids.iter().copied().map(process_ns);
        let redis_ns = redis.sum::<Result<u64, NoCpuTime>>()?;
        Ok(Self {
            client_ns: process_ns(process::id()).ok(),
            server_ns: watched.server_pid.map(process_ns).transpose()?,
            redis_ns: (!watched.redis_pids.is_empty()).then_some(redis_ns),
        })
    }

    /// Spent since then.
    pub fn since(&self, then: &CpuTimes) -> Self {
        let spent = |now: Option<u64>, then: Option<u64>| Some(now?.saturating_sub(then?));
        Self {
            client_ns: spent(self.client_ns, then.client_ns),
            server_ns: spent(self.server_ns, then.server_ns),
            redis_ns: spent(self.redis_ns, then.redis_ns),
        }
    }
}

/// Of all its threads that are alive: to the nanosecond, where /proc/PID/stat has hundredths of a
/// second.
pub fn process_ns(pid: u32) -> Result<u64, NoCpuTime> {
    let fault = |why: String| NoCpuTime { pid, why };
    let tasks = format!("/proc/{pid}/task");
    let tasks = fs::read_dir(tasks).map_err(|error| fault(error.to_string()))?;
    let mut total_ns = 0;
    for task in tasks.flatten() {
        // A thread that has ended meanwhile is not counted.
        total_ns += thread_ns(&task.path()).unwrap_or(0);
    }
    match total_ns {
        0 => Err(fault("the kernel keeps no schedstat".to_owned())),
        _ => Ok(total_ns),
    }
}

fn thread_ns(task: &Path) -> Option<u64> {
    let text = fs::read_to_string(task.join("schedstat")).ok()?;
    text.split(' ').next()?.parse().ok()
}
