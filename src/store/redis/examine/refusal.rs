//! What the user may not do, by command and by prefix.

use redis::Value;

use super::sample::glob;
use crate::store::{
    StoreError,
    examination::{Check, Finding, Severity},
    redis::work::error_of,
};

/// What the service runs by itself and in scripts.
pub(super) const COMMANDS: [(&str, Access); 7] = [
    ("SET", Access::Writes),
    ("GET", Access::Reads),
    ("MGET", Access::Reads),
    ("PTTL", Access::Reads),
    ("PEXPIRE", Access::Writes),
    ("DEL", Access::Writes),
    ("EVAL", Access::Writes),
];
pub(super) const EVALSHA: &str = "EVALSHA";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Access {
    Reads,
    Writes,
}

/// What the server would not do.
#[derive(Debug, Default)]
pub(super) struct Refusals {
    commands: Vec<&'static str>,
    /// Prefixes whose keys may not be read, and those whose keys may not be written.
    keys: Vec<(String, Access)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    Command,
    Key,
}

/// Whether the user may not do this, and which half of it.
pub(super) fn refusal(reply: &Value) -> Option<Refusal> {
    let Value::ServerError(error) = reply else {
        return None;
    };
    (error_of(reply) == StoreError::Denied).then(|| {
        // In the words of every version: `to run the 'get' command`, `to access a key`.
        if error.details().is_some_and(|text| text.contains("to run")) {
            Refusal::Command
        } else {
            Refusal::Key
        }
    })
}

impl Refusals {
    pub(super) fn command(&mut self, name: &'static str) {
        if !self.commands.contains(&name) {
            self.commands.push(name);
        }
    }

    /// Takes note of what was refused; `true`: nothing was. Any other error is the store's.
    pub(super) fn read(&mut self, prefix: &str, replies: &[Value]) -> Result<bool, StoreError> {
        let mut is_permitted = true;
        for ((name, access), reply) in COMMANDS.into_iter().zip(replies) {
            let refusal = refusal(reply);
            is_permitted &= refusal.is_none();
            match (refusal, reply) {
                (Some(Refusal::Command), _) => self.command(name),
                (Some(Refusal::Key), _) => {
                    let key = (prefix.to_owned(), access);
                    if !self.keys.contains(&key) {
                        self.keys.push(key);
                    }
                }
                (None, Value::ServerError(_)) => return Err(error_of(reply)),
                (None, _) => {}
            }
        }
        Ok(is_permitted)
    }

    pub(super) fn findings(self) -> Vec<Finding> {
        let failure = |message| Finding::new(Check::Permission, Severity::Failure, message);
        let mut findings = Vec::new();
        if !self.commands.is_empty() {
            let rules: Vec<String> = self
                .commands
                .iter()
                .map(|name| format!("+{}", name.to_ascii_lowercase()))
                .collect();
            let (names, rules) = (self.commands.join(", "), rules.join(" "));
            findings.push(failure(format!("refused: {names}; permit {rules}")));
        }
        let mut prefixes: Vec<&String> = self.keys.iter().map(|(prefix, _)| prefix).collect();
        prefixes.dedup();
        for prefix in prefixes {
            let refused = |access| self.keys.contains(&(prefix.clone(), access));
            let what = match (refused(Access::Reads), refused(Access::Writes)) {
                (true, false) => "read",
                (false, true) => "written",
                (true, true) | (false, false) => "touched",
            };
            let pattern = glob(prefix);
            findings.push(
                failure(format!("its keys may not be {what}; permit ~{pattern}")).about(&pattern),
            );
        }
        findings
    }
}
