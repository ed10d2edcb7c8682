//! The commands of one pipeline, as they are put together.

use std::sync::Arc;

use redis::Value;

use super::{
    script::{Abilities, ScriptCall},
    slot::slot_of,
    wire::{Commands, Form},
};

/// Commands and script calls; places count what was asked for, not what goes with it on the wire.
pub(super) struct Batch {
    commands: Commands,
    abilities: Arc<Abilities>,
    /// The server belongs to a cluster: the keys of one script call must share a slot.
    per_slot: bool,
    /// Each command is to be taken by a server to which the slot is only on its way.
    asking: bool,
    len: usize,
    /// Where the pipeline holds an ASKING.
    askings: Vec<usize>,
    calls: Vec<(usize, ScriptCall)>,
}

impl Batch {
    pub(super) fn new(
        capacity: usize,
        abilities: Arc<Abilities>,
        per_slot: bool,
        asking: bool,
    ) -> Self {
        Self {
            commands: Commands::with_capacity(capacity),
            abilities,
            per_slot,
            asking,
            len: 0,
            askings: Vec::new(),
            calls: Vec::new(),
        }
    }

    /// Begins a command; its arguments follow.
    pub(super) fn command(&mut self, name: &str) -> &mut Commands {
        self.next().cmd(name)
    }

    pub(super) fn filled(&mut self, form: &Form, words: [&[u8]; 2]) {
        self.next().filled(form, words);
    }

    fn next(&mut self) -> &mut Commands {
        if self.asking {
            self.askings.push(self.commands.len());
            self.commands.cmd("ASKING");
        }
        self.len += 1;
        &mut self.commands
    }

    /// By its hash if the server has it.
    pub(super) fn call(&mut self, call: ScriptCall) {
        let abilities = Arc::clone(&self.abilities);
        match abilities.hash(call.script) {
            Some(hash) => call.write(hash, self.command("EVALSHA")),
            None => call.write(call.script.source(), self.command("EVAL")),
        }
        self.calls.push((self.len - 1, call));
    }

    /// By its text, which also makes the server keep it.
    pub(super) fn call_by_text(&mut self, call: &ScriptCall) {
        call.write(call.script.source(), self.command("EVAL"));
    }

    /// Items that may go into one script call, in their order: all of them, on a cluster those of
    /// one slot, and to a server to which the slot is on its way each alone.
    pub(super) fn together<'k>(
        &self,
        items: Vec<usize>,
        key: impl Fn(usize, &mut Vec<u8>) + 'k,
    ) -> Vec<Vec<usize>> {
        if items.is_empty() {
            return Vec::new();
        }
        if !self.per_slot {
            return vec![items];
        }
        if self.asking {
            return items.into_iter().map(|item| vec![item]).collect();
        }
        let mut groups: Vec<(usize, Vec<usize>)> = Vec::new();
        let mut places = hashbrown::HashMap::new();
        let mut name = Vec::with_capacity(64);
        for item in items {
            name.clear();
            key(item, &mut name);
            let slot = slot_of(&name);
            let place = *places.entry(slot).or_insert_with(|| {
                groups.push((slot, Vec::new()));
                groups.len() - 1
            });
            groups[place].1.push(item);
        }
        groups.into_iter().map(|(_, group)| group).collect()
    }

    pub(super) fn abilities(&self) -> &Arc<Abilities> {
        &self.abilities
    }

    /// The slot is only on its way to the server.
    pub(super) const fn is_asking(&self) -> bool {
        self.asking
    }

    pub(super) const fn follows_redirections(&self) -> bool {
        self.per_slot
    }

    /// How many commands there are, and so where the next one's reply will be.
    pub(super) const fn len(&self) -> usize {
        self.len
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The commands as bytes, and how many replies they have.
    pub(super) fn take_commands(&mut self) -> (Vec<u8>, usize) {
        let replies = self.commands.len();
        (self.commands.take(), replies)
    }

    pub(super) fn calls(&self) -> &[(usize, ScriptCall)] {
        &self.calls
    }

    /// An empty one for the same server.
    pub(super) fn another(&self) -> Self {
        Self::new(0, Arc::clone(&self.abilities), self.per_slot, self.asking)
    }

    /// The replies of the commands, without those of what went with them.
    pub(super) fn replies(&self, mut replies: Vec<Value>) -> Vec<Value> {
        if !self.askings.is_empty() {
            let mut place = 0;
            let mut askings = self.askings.iter().copied().peekable();
            replies.retain(|_| {
                place += 1;
                askings.next_if_eq(&(place - 1)).is_none()
            });
        }
        replies
    }
}
