//! How much memory this process may use.

use std::fs;

/// Of cgroups v2 and v1, as a container sees its own.
const LIMIT_FILES: [&str; 2] = [
    "/sys/fs/cgroup/memory.max",
    "/sys/fs/cgroup/memory/memory.limit_in_bytes",
];
/// Version 1 says no limit by a number that no machine has.
const MOST_BYTES: u64 = 1 << 50;

/// `None`: without a limit, as far as is known.
pub(crate) fn memory_limit_bytes() -> Option<u64> {
    let limits = LIMIT_FILES
        .iter()
        .filter_map(|file| fs::read_to_string(file).ok()?.trim().parse().ok());
    limits.filter(|limit| *limit < MOST_BYTES).min()
}
