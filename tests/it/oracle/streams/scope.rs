//! Which streams are drawn: of which rules and positions, and on which grid of time.

use super::super::{Place, Position, Rules, Window};

#[derive(Clone, Copy, Debug)]
pub(crate) struct Scope {
    pub(crate) sessions: bool,
    pub(crate) space_guards: bool,
    pub(crate) projections: bool,
    /// Every TTL, lease and moment is a multiple of it.
    pub(crate) tick_ms: u64,
}

impl Scope {
    pub(crate) const FULL: Self = Self {
        sessions: true,
        space_guards: true,
        projections: true,
        tick_ms: 1,
    };

    pub(super) fn holds_rules(self, rules: &Rules) -> bool {
        let is_session = matches!(rules.window, Window::Session { .. });
        let has_space_guard = rules
            .place
            .is_some_and(|Place { guard_m, .. }| guard_m > 0.0);
        (self.sessions || !is_session) && (self.space_guards || !has_space_guard)
    }

    pub(super) fn holds_position(self, position: Position) -> bool {
        self.projections || !matches!(position, Position::Projected { .. })
    }

    /// Upwards, so that rules stay valid.
    pub(super) fn on_the_grid(self, ms: u64) -> u64 {
        ms.next_multiple_of(self.tick_ms)
    }
}
