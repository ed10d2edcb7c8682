//! What is done to the site, drawn from a seed.

use std::{
    sync::Arc,
    thread::{self, JoinHandle},
    time::Duration,
};

use super::{
    history::{Loses, Span, Trouble},
    recorder::Recorder,
    run::Seen,
    site::{SERVICES, Site},
    store::Topology,
};
use crate::client::Dice;

/// What is done at a time by one thread; several run, so that troubles meet.
#[derive(Clone, Copy, Debug)]
pub(super) enum Track {
    Wires,
    Servers,
    Services,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WireFault {
    SlowRequests(Duration),
    SlowReplies(Duration),
    /// Bytes a second.
    Narrow(u32),
    /// So many times a connection goes deaf.
    LosesReplies(usize),
    BlackHole,
    /// What was sent into it is lost.
    BlackHoleThenCut,
    HoldsReplies,
    Cut,
    Refuses,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ServerFault {
    Hangs,
    /// It comes back with what it had acknowledged.
    Dies,
    ScriptsAreLost,
    FailsOver,
    /// From the others, not from the services.
    IsCutOff,
    SlotsMove,
}

impl WireFault {
    const fn name(self) -> &'static str {
        match self {
            WireFault::SlowRequests(_) => "slow requests",
            WireFault::SlowReplies(_) => "slow replies",
            WireFault::Narrow(_) => "narrow wire",
            WireFault::LosesReplies(_) => "lost replies",
            WireFault::BlackHole => "black hole",
            WireFault::BlackHoleThenCut => "lost requests",
            WireFault::HoldsReplies => "held replies",
            WireFault::Cut => "cut",
            WireFault::Refuses => "refusal",
        }
    }
}

impl ServerFault {
    const fn name(self) -> &'static str {
        match self {
            ServerFault::Hangs => "server hangs",
            ServerFault::Dies => "server dies",
            ServerFault::ScriptsAreLost => "scripts lost",
            ServerFault::FailsOver => "failover",
            ServerFault::IsCutOff => "partition",
            ServerFault::SlotsMove => "slots move",
        }
    }
}

fn wire_fault(topology: Topology, dice: &mut Dice) -> WireFault {
    let delay = Duration::from_millis(10 + dice.below(190) as u64);
    let faults = match topology {
        Topology::Standalone => 9,
        // Replication uses the wires as well, and must not be lost without a word.
        Topology::Sentinels | Topology::Cluster => 5,
    };
    match dice.below(faults) {
        0 => WireFault::SlowRequests(delay),
        1 => WireFault::SlowReplies(delay),
        2 => WireFault::BlackHole,
        3 => WireFault::HoldsReplies,
        4 => WireFault::Cut,
        5 => WireFault::LosesReplies(1 + dice.below(4)),
        6 => WireFault::BlackHoleThenCut,
        7 => WireFault::Narrow(5_000 + dice.below(50_000) as u32),
        _ => WireFault::Refuses,
    }
}

fn server_fault(topology: Topology, dice: &mut Dice) -> ServerFault {
    use ServerFault::{Dies, FailsOver, Hangs, IsCutOff, ScriptsAreLost, SlotsMove};
    let faults: &[ServerFault] = match topology {
        Topology::Standalone => &[Hangs, Hangs, Dies, Dies, ScriptsAreLost],
        Topology::Sentinels => &[Hangs, Dies, FailsOver, IsCutOff, ScriptsAreLost],
        Topology::Cluster => &[Hangs, Dies, FailsOver, SlotsMove, SlotsMove, ScriptsAreLost],
    };
    faults[dice.below(faults.len())]
}

/// Troubles the site until told to stop, and leaves it without a fault.
pub(super) fn run(
    track: Track,
    mut dice: Dice,
    site: Arc<Site>,
    recorder: Arc<Recorder>,
    at_war: Seen,
) -> JoinHandle<()> {
    thread::spawn(move || {
        loop {
            thread::sleep(track.pause(&mut dice));
            if !at_war.is_up() {
                return;
            }
            recorder.trouble(trouble(track, &mut dice, &site));
        }
    })
}

impl Track {
    fn pause(self, dice: &mut Dice) -> Duration {
        let pause = Duration::from_millis(100 + dice.below(700) as u64);
        match self {
            Track::Wires | Track::Servers => pause,
            Track::Services => pause * 6,
        }
    }
}

/// One trouble, from its beginning to its end.
fn trouble(track: Track, dice: &mut Dice, site: &Site) -> Trouble {
    let topology = site.topology();
    let from = site.now();
    let (what, loses) = match track {
        Track::Wires => {
            let number = dice.below(site.wires().len());
            let fault = wire_fault(topology, dice);
            let longest = match topology {
                Topology::Standalone => 1000,
                // The others must not take a server for dead.
                Topology::Sentinels | Topology::Cluster => 400,
            };
            let lasts = Duration::from_millis(20 + dice.below(longest) as u64);
            site.disturb(number, fault, lasts);
            (fault.name(), Loses::Nothing)
        }
        Track::Servers => {
            let fault = server_fault(topology, dice);
            let lasts = Duration::from_millis(20 + dice.below(1000) as u64);
            let loses = site.with_store(|store| {
                let before = store.promotions();
                store.suffer(fault, lasts, dice);
                site.planned(store.promotions() - before);
                store.loses(fault)
            });
            (fault.name(), loses)
        }
        Track::Services => {
            let number = dice.below(SERVICES);
            site.replace(number);
            ("service dies", Loses::Calls)
        }
    };
    let to = site.now();
    let span = Span { from, to };
    Trouble { what, span, loses }
}
