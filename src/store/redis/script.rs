//! The scripts, and how they are called: by their hash where the server has them.

use std::sync::atomic::AtomicBool;

use super::wire::Commands;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Script {
    Claim = 0,
    Settle = 1,
    GiveBack = 2,
    Contract = 3,
    Forget = 4,
    WriteBack = 5,
    Heal = 6,
}

impl Script {
    pub(super) const ALL: [Script; 7] = [
        Script::Claim,
        Script::Settle,
        Script::GiveBack,
        Script::Contract,
        Script::Forget,
        Script::WriteBack,
        Script::Heal,
    ];

    pub(super) const fn source(self) -> &'static str {
        match self {
            Script::Claim => include_str!("scripts/claim.lua"),
            Script::Settle => include_str!("scripts/settle.lua"),
            Script::GiveBack => include_str!("scripts/give_back.lua"),
            Script::Contract => include_str!("scripts/contract.lua"),
            Script::Forget => include_str!("scripts/forget.lua"),
            Script::WriteBack => include_str!("scripts/write_back.lua"),
            Script::Heal => include_str!("scripts/heal.lua"),
        }
    }
}

/// What the server behind a connection can do.
#[derive(Debug)]
pub(super) struct Abilities {
    /// In the order of [`Script::ALL`].
    pub(super) hashes: Vec<Option<String>>,
    /// `SET … NX … GET`, from Redis 7.0.
    pub(super) sets_and_gets: AtomicBool,
}

impl Abilities {
    /// The script's SHA1 on this server, if it took it.
    pub(super) fn hash(&self, script: Script) -> Option<&str> {
        self.hashes.get(script as usize)?.as_deref()
    }
}

/// A script call with its keys and arguments, kept until its reply, since the server may have
/// lost the script.
#[derive(Clone, Debug)]
pub(super) struct ScriptCall {
    pub(super) script: Script,
    pub(super) keys: Vec<Vec<u8>>,
    pub(super) arguments: Vec<Vec<u8>>,
}

impl ScriptCall {
    pub(super) fn new(script: Script) -> Self {
        Self {
            script,
            keys: Vec::new(),
            arguments: Vec::new(),
        }
    }

    /// Appends what follows the command's name; `script` is the text or its hash.
    pub(super) fn write(&self, script: &str, command: &mut Commands) {
        command.arg(script).arg(self.keys.len());
        for key in &self.keys {
            command.arg(key.as_slice());
        }
        for argument in &self.arguments {
            command.arg(argument.as_slice());
        }
    }
}
