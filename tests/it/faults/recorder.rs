//! Writes the history, as it happens and from many tasks.

use std::{sync::Mutex, time::Duration};

use super::history::{
    Act, Attempt, Deed, Delivery, Ending, Event, History, Noise, Rules, Span, Trouble,
};

pub(super) struct Recorder(Mutex<History>);

impl Recorder {
    pub(super) fn new(rules: Rules) -> Self {
        Self(Mutex::new(History {
            rules,
            events: Vec::new(),
            deliveries: Vec::new(),
            attempts: Vec::new(),
            acts: Vec::new(),
            troubles: Vec::new(),
            noise: Noise::default(),
        }))
    }

    /// Its number.
    pub(super) fn event(&self, event: impl FnOnce(usize) -> Event) -> usize {
        self.with(|history| {
            let number = history.events.len();
            history.events.push(event(number));
            number
        })
    }

    /// Its number.
    pub(super) fn delivery(&self, event: usize) -> usize {
        self.with(|history| {
            history.deliveries.push(Delivery {
                event,
                ending: None,
            });
            history.deliveries.len() - 1
        })
    }

    pub(super) fn ends(&self, delivery: usize, ending: Ending) {
        self.with(|history| {
            let earlier = history.deliveries[delivery].ending.replace(ending);
            assert_eq!(earlier, None, "acknowledged once");
        });
    }

    /// Its number.
    pub(super) fn attempt(&self, attempt: Attempt) -> usize {
        self.with(|history| {
            history.attempts.push(attempt);
            history.attempts.len() - 1
        })
    }

    pub(super) fn act(&self, holder: usize, span: Span, deed: Deed) {
        self.with(|history| history.acts.push(Act { holder, span, deed }));
    }

    pub(super) fn trouble(&self, trouble: Trouble) {
        self.with(|history| history.troubles.push(trouble));
    }

    pub(super) fn pulse(&self, pulse: Span) {
        self.with(|history| history.noise.pulses.push(pulse));
    }

    pub(super) fn wait(&self, span: Span, wait: Duration) {
        self.with(|history| history.noise.waits.push((span, wait)));
    }

    pub(super) fn history(&self) -> History {
        self.with(|history| history.clone())
    }

    fn with<T>(&self, record: impl FnOnce(&mut History) -> T) -> T {
        record(&mut self.0.lock().expect("no panic inside"))
    }
}
