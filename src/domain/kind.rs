//! The three kinds of event.

use std::fmt;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Transition,
    Ping,
    Keyed,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Kind::Transition => "transition",
            Kind::Ping => "ping",
            Kind::Keyed => "keyed",
        })
    }
}

/// The kinds of event that a namespace takes: keyed alone, or transitions, pings or both.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Accepts {
    pub transition: bool,
    pub ping: bool,
    pub keyed: bool,
}

impl Accepts {
    pub fn from_kinds(kinds: impl IntoIterator<Item = Kind>) -> Self {
        kinds
            .into_iter()
            .fold(Self::default(), |accepts, kind| match kind {
                Kind::Transition => Self {
                    transition: true,
                    ..accepts
                },
                Kind::Ping => Self {
                    ping: true,
                    ..accepts
                },
                Kind::Keyed => Self {
                    keyed: true,
                    ..accepts
                },
            })
    }

    pub const fn contains(self, kind: Kind) -> bool {
        match kind {
            Kind::Transition => self.transition,
            Kind::Ping => self.ping,
            Kind::Keyed => self.keyed,
        }
    }

    pub fn kinds(self) -> impl Iterator<Item = Kind> {
        [Kind::Transition, Kind::Ping, Kind::Keyed]
            .into_iter()
            .filter(move |kind| self.contains(*kind))
    }
}

impl fmt::Display for Accepts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, kind) in self.kinds().enumerate() {
            let separator = if index == 0 { "" } else { " and " };
            let plural = match kind {
                Kind::Transition => "transitions",
                Kind::Ping => "pings",
                Kind::Keyed => "keyed events",
            };
            write!(f, "{separator}{plural}")?;
        }
        Ok(())
    }
}
