//! Who or what an event is about: the part of its subject that the caller names.

use super::{
    kind::{Accepts, Kind},
    reason::{Reason, Rejection},
};

/// Longest device, fence, asset or event id, bytes.
pub const MAX_ID_BYTES: usize = 512;

/// An identity as it came, not judged yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RawIdentity<'a> {
    #[default]
    Unset,
    Transition {
        device_id: &'a str,
        fence_id: &'a str,
        /// `None` where the kind is unspecified.
        kind: Option<RawTransitionKind>,
        sequence: Option<u64>,
        sequence_epoch: u32,
    },
    Ping {
        asset_id: &'a str,
    },
    Keyed {
        event_id: &'a str,
    },
}

/// A kind's number on the wire is known or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RawTransitionKind {
    Known(TransitionKind),
    Unknown(i32),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransitionKind {
    Enter,
    Exit,
    Dwell,
}

impl TransitionKind {
    /// The letter in the key material.
    pub const fn letter(self) -> u8 {
        match self {
            TransitionKind::Enter => b'E',
            TransitionKind::Exit => b'X',
            TransitionKind::Dwell => b'D',
        }
    }
}

/// A device's own number of a crossing, within a run of its numbering.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sequence {
    pub epoch: u32,
    pub number: u64,
}

/// An identity that a namespace accepts: every id is 1 to 512 bytes and not only white space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Identity<'a> {
    Transition {
        device_id: &'a str,
        fence_id: &'a str,
        kind: TransitionKind,
        sequence: Option<Sequence>,
    },
    Ping {
        asset_id: &'a str,
    },
    Keyed {
        event_id: &'a str,
    },
}

impl<'a> Identity<'a> {
    pub fn new(raw: RawIdentity<'a>, accepts: Accepts) -> Result<Self, Rejection> {
        let named: [(&str, &str); 2] = match raw {
            RawIdentity::Unset => {
                return Err(Rejection::new(
                    Reason::MissingIdentity,
                    "the event is neither a transition, a ping nor keyed",
                ));
            }
            RawIdentity::Transition {
                device_id,
                fence_id,
                ..
            } => [("device_id", device_id), ("fence_id", fence_id)],
            RawIdentity::Ping { asset_id } => [("asset_id", asset_id); 2],
            RawIdentity::Keyed { event_id } => [("event_id", event_id); 2],
        };
        // Nearly every id is: one look settles all three questions.
        let plain = named.iter().all(|(_, id)| is_plain(id));
        if !plain {
            refuse_blank(&named)?;
        }
        if let RawIdentity::Transition { kind: None, .. } = raw {
            return Err(Rejection::new(
                Reason::MissingIdentity,
                "the transition's kind is unspecified",
            ));
        }
        if !plain {
            refuse_oversized(&named)?;
        }
        let identity = match raw {
            RawIdentity::Unset => unreachable!("refused above"),
            RawIdentity::Transition { kind: None, .. } => unreachable!("refused above"),
            RawIdentity::Transition {
                kind: Some(RawTransitionKind::Unknown(number)),
                ..
            } => {
                return Err(Rejection::new(
                    Reason::WrongKind,
                    format!("transition kind {number} is not known"),
                ));
            }
            RawIdentity::Transition {
                device_id,
                fence_id,
                kind: Some(RawTransitionKind::Known(kind)),
                sequence,
                sequence_epoch,
            } => Identity::Transition {
                device_id,
                fence_id,
                kind,
                sequence: sequence.map(|number| Sequence {
                    epoch: sequence_epoch,
                    number,
                }),
            },
            RawIdentity::Ping { asset_id } => Identity::Ping { asset_id },
            RawIdentity::Keyed { event_id } => Identity::Keyed { event_id },
        };
        let kind = identity.kind();
        if !accepts.contains(kind) {
            return Err(Rejection::new(
                Reason::WrongKind,
                format!("the namespace accepts {accepts}, not {kind}"),
            ));
        }
        Ok(identity)
    }

    pub const fn kind(&self) -> Kind {
        match self {
            Identity::Transition { .. } => Kind::Transition,
            Identity::Ping { .. } => Kind::Ping,
            Identity::Keyed { .. } => Kind::Keyed,
        }
    }

    /// What people call the subject: the device, the asset or the event id.
    pub const fn name(&self) -> &'a str {
        match self {
            Identity::Transition { device_id, .. } => device_id,
            Identity::Ping { asset_id } => asset_id,
            Identity::Keyed { event_id } => event_id,
        }
    }
}

/// Begins with a visible character and is short enough.
fn is_plain(id: &str) -> bool {
    id.len() <= MAX_ID_BYTES && id.as_bytes().first().is_some_and(u8::is_ascii_graphic)
}

fn refuse_blank(named: &[(&str, &str)]) -> Result<(), Rejection> {
    match named.iter().find(|(_, id)| id.trim().is_empty()) {
        None => Ok(()),
        Some((name, _)) => Err(Rejection::new(
            Reason::MissingIdentity,
            format!("{name} is empty or white space"),
        )),
    }
}

fn refuse_oversized(named: &[(&str, &str)]) -> Result<(), Rejection> {
    match named.iter().find(|(_, id)| id.len() > MAX_ID_BYTES) {
        None => Ok(()),
        Some((name, id)) => Err(Rejection::new(
            Reason::OversizedIdentity,
            format!(
                "{name} has {} bytes; at most {MAX_ID_BYTES} are allowed",
                id.len()
            ),
        )),
    }
}
