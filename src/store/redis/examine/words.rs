//! What people are told about an error of the store.

use crate::store::{StoreError, redis::connection::DialError};

pub(super) fn cannot_connect(fault: &DialError) -> String {
    // A database that may not be selected is refused in the handshake, under no code of its own.
    let error = if fault.why.contains("no permissions") {
        StoreError::Denied
    } else {
        fault.error
    };
    format!("cannot connect: {fault}; {}", advice(error))
}

/// What to do about it.
pub(super) const fn advice(error: StoreError) -> &'static str {
    match error {
        StoreError::Timeout => {
            "see whether the server hangs, and whether a firewall swallows its packets"
        }
        StoreError::Connection => {
            "see whether the server runs and has room for clients (maxclients), and whether store.url names \
             its host, port and TLS"
        }
        StoreError::Unauthenticated => {
            "correct user and password: ACL GETUSER tells what the user may do"
        }
        StoreError::ReadOnly => "use the primary's address",
        StoreError::Loading => "wait until the server has loaded its data",
        StoreError::OutOfMemory | StoreError::Full => {
            "raise maxmemory, shorten TTLs, or move other tenants"
        }
        StoreError::MisConfigured => "look into the server's log and its disk",
        StoreError::NoReplicas => {
            "bring the replicas back that min-replicas-to-write asks for, or lower it"
        }
        StoreError::Moved => "use redis-cluster:// for a cluster",
        StoreError::ClusterDown => "look at CLUSTER INFO for slots that nobody serves",
        StoreError::ShardDown => "see why that server of the cluster is down",
        StoreError::TryAgain | StoreError::Overloaded => "ask again in a moment",
        StoreError::Busy => "find whose script runs for so long; SCRIPT KILL ends it",
        StoreError::Denied => "permit what is refused: ACL GETUSER tells what the user may do",
        StoreError::WrongType => "find out who writes other types under our keys",
        StoreError::NoScript | StoreError::Protocol => {
            "see whether this is a Redis, and what stands between"
        }
        StoreError::Other => "look into the server's log",
    }
}
