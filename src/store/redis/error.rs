//! What Redis or its client reports, as a [`StoreError`].

use redis::{ErrorKind, RedisError, ServerError};

use crate::store::StoreError;

impl From<&ServerError> for StoreError {
    fn from(error: &ServerError) -> Self {
        from_code(error.code())
    }
}

impl From<&RedisError> for StoreError {
    fn from(error: &RedisError) -> Self {
        if let Some(code) = error.code() {
            return from_code(code);
        }
        match error.kind() {
            ErrorKind::AuthenticationFailed => StoreError::Unauthenticated,
            ErrorKind::Parse | ErrorKind::UnexpectedReturnType => StoreError::Protocol,
            _ if error.is_timeout() => StoreError::Timeout,
            _ => StoreError::Connection,
        }
    }
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
