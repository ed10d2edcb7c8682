//! What Redis or its client reports, as a [`StoreError`].

use std::io;

use redis::{ErrorKind, RedisError, ServerError, Value};

use super::{slot::SLOTS, target::Address};
use crate::store::StoreError;

impl From<&ServerError> for StoreError {
    fn from(error: &ServerError) -> Self {
        match from_code(error.code()) {
            // A script's, before Redis 7.
            StoreError::Other => from_text(error.details().unwrap_or_default()),
            known => known,
        }
    }
}

impl From<&RedisError> for StoreError {
    fn from(error: &RedisError) -> Self {
        match error.kind() {
            ErrorKind::Parse => StoreError::Protocol,
            _ if error.is_timeout() => StoreError::Timeout,
            _ => StoreError::Connection,
        }
    }
}

/// The innermost reason, which is that of the system or of TLS: a server's errors are replies.
pub(super) fn reason(error: &RedisError) -> String {
    let mut innermost: &dyn std::error::Error = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    match innermost.downcast_ref::<io::Error>().map(io::Error::kind) {
        Some(
            io::ErrorKind::UnexpectedEof
            | io::ErrorKind::BrokenPipe
            | io::ErrorKind::ConnectionReset,
        ) => "the server closed the connection".to_owned(),
        _ => shown(&innermost.to_string()),
    }
}

/// The server's own words.
pub(super) fn said(error: &ServerError) -> String {
    let detail = shown(error.details().unwrap_or_default());
    format!("{} {}", error.code(), detail.trim_end_matches('.'))
}

/// What a server says, fit for a line: it may be a stranger.
pub(super) fn shown(text: &str) -> String {
    const MAX_CHARS: usize = 300;
    let replaced = |c: char| if c.is_control() { '\u{fffd}' } else { c };
    text.chars().take(MAX_CHARS).map(replaced).collect()
}

/// The error that a script reports as a text, which begins with its code.
pub(super) fn from_text(text: &str) -> StoreError {
    // Redis 6.2 puts the script's line before it: `@user_script: 12: -READONLY You can't write …`.
    let text = text.rsplit_once(": -").map_or(text, |(_, error)| error);
    from_code(
        text.trim_start_matches('-')
            .split(' ')
            .next()
            .unwrap_or_default(),
    )
}

/// The first word of an error reply.
fn from_code(code: &str) -> StoreError {
    match code {
        "WRONGTYPE" => StoreError::WrongType,
        "READONLY" => StoreError::ReadOnly,
        "LOADING" | "MASTERDOWN" => StoreError::Loading,
        "OOM" => StoreError::OutOfMemory,
        "MISCONF" => StoreError::MisConfigured,
        "NOSCRIPT" => StoreError::NoScript,
        "NOREPLICAS" => StoreError::NoReplicas,
        "MOVED" | "ASK" | "CROSSSLOT" => StoreError::Moved,
        "CLUSTERDOWN" => StoreError::ClusterDown,
        "TRYAGAIN" => StoreError::TryAgain,
        "BUSY" => StoreError::Busy,
        "NOPERM" => StoreError::Denied,
        "NOAUTH" | "WRONGPASS" => StoreError::Unauthenticated,
        _ => StoreError::Other,
    }
}

/// Where a cluster wants a command to be sent instead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Redirection {
    /// The slot belongs to another server now. A host may be missing: it is the same one.
    Moved { slot: usize, address: Address },
    /// The slot is on its way to another server, and these keys are there already.
    Ask { address: Address },
    /// Some of the keys are still on their way: the same server, a little later.
    Again,
}

/// `None`: the reply is no redirection.
pub(super) fn redirection(reply: &Value) -> Option<Redirection> {
    let Value::ServerError(error) = reply else {
        return None;
    };
    if error.code() == "TRYAGAIN" {
        return Some(Redirection::Again);
    }
    let mut details = error.details().unwrap_or_default().split(' ');
    let slot = details.next().and_then(|slot| slot.parse().ok());
    let (host, port) = details.next()?.rsplit_once(':')?;
    let address = Address {
        host: host.to_owned(),
        port: port.parse().ok()?,
    };
    match error.code() {
        "MOVED" => slot
            .filter(|slot| *slot < SLOTS)
            .map(|slot| Redirection::Moved { slot, address }),
        "ASK" => Some(Redirection::Ask { address }),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r06_a_scripts_error_has_its_code_on_every_version() {
        for (text, expected) in [
            (
                "READONLY You can't write against a read only replica.",
                StoreError::ReadOnly,
            ),
            (
                "@user_script: 129: -READONLY You can't write against a read only replica.",
                StoreError::ReadOnly,
            ),
            (
                "@user_script: 7: -OOM command not allowed when used memory > 'maxmemory'.",
                StoreError::OutOfMemory,
            ),
            (
                "-MISCONF Redis is configured to save RDB snapshots",
                StoreError::MisConfigured,
            ),
            ("ERR something else", StoreError::Other),
            ("", StoreError::Other),
        ] {
            assert_eq!(from_text(text), expected, "{text}");
        }
    }
}
