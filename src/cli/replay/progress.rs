//! How far a replay is, on a terminal.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use indicatif::{ProgressBar, ProgressState, ProgressStyle};

use crate::replay::run::Progress;

const KNOWN: &str = "{wide_bar} {percent}%  {rate}  {eta} left";
const UNKNOWN: &str = "{spinner}  {events} events  {rate}  {elapsed}";

/// One bar for all readings of a trace. It shows nothing where stderr is no terminal.
pub(super) struct Bar {
    bar: ProgressBar,
    readings: Box<[Reading]>,
    events: Arc<AtomicU64>,
}

#[derive(Default)]
struct Reading {
    read: AtomicU64,
    events: AtomicU64,
}

impl Bar {
    pub(super) fn new(readings: usize) -> Self {
        let events = Arc::new(AtomicU64::new(0));
        let bar = ProgressBar::no_length();
        bar.set_style(style(UNKNOWN, &events));
        Self {
            bar,
            readings: std::iter::repeat_with(Reading::default)
                .take(readings)
                .collect(),
            events,
        }
    }

    pub(super) fn show(&self, reading: usize, progress: Progress) {
        if self.bar.is_hidden() {
            return;
        }
        let seen = &self.readings[reading];
        let newer =
            |seen: &AtomicU64, now: u64| now.saturating_sub(seen.swap(now, Ordering::Relaxed));
        let events = newer(&seen.events, progress.events);
        self.events.fetch_add(events, Ordering::Relaxed);
        if let Some(of) = progress.of
            && self.bar.length().is_none()
        {
            self.bar.set_style(style(KNOWN, &self.events));
            self.bar.set_length(of * self.readings.len() as u64);
        }
        self.bar.inc(newer(&seen.read, progress.read));
    }

    pub(super) fn clear(&self) {
        self.bar.finish_and_clear();
    }
}

fn style(template: &str, events: &Arc<AtomicU64>) -> ProgressStyle {
    let (counted, for_rate) = (Arc::clone(events), Arc::clone(events));
    let count = move |_: &ProgressState, out: &mut dyn fmt::Write| {
        let _ = write!(out, "{}", counted.load(Ordering::Relaxed));
    };
    let rate = move |state: &ProgressState, out: &mut dyn fmt::Write| {
        let events = for_rate.load(Ordering::Relaxed) as f64;
        let seconds = state.elapsed().as_secs_f64().max(1e-3);
        let _ = write!(out, "{:.2} M events/s", events / seconds / 1e6);
    };
    ProgressStyle::with_template(template)
        .expect("the templates are ours")
        .with_key("events", count)
        .with_key("rate", rate)
}
