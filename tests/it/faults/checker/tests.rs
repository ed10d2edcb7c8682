//! Histories made by hand, good ones and bad ones. A checker that cannot fail is a defect.

use std::{collections::BTreeMap, time::Duration};

use dedupd::grpc::proto::SettleOutcome::{
    AlreadyApplied, AlreadyConfirmed, Applied, NotHeld, StoreUnavailable,
};

use super::{
    super::history::{
        Act, Action::*, Answer::*, Attempt, Deed, Deed::*, Delivery, Ending, Event, History, Loses,
        Mode, NoAnswer, Noise, Rules, Span, Trouble,
    },
    Counted, Kind, check,
};

const LEASE_MS: u64 = 1000;
const TTL_MS: u64 = 60_000;
const BUDGET_MS: u64 = 50;

/// A history in the making; times are milliseconds, and there is one event.
struct Tale(History);

impl Tale {
    fn of(lease: Option<u64>) -> Self {
        Self(History {
            rules: Rules {
                lease: lease.map(Duration::from_millis),
                ttl: Duration::from_millis(TTL_MS),
                budget: Duration::from_millis(BUDGET_MS),
            },
            events: vec![Event { mode: Mode::Closed }],
            deliveries: Vec::new(),
            attempts: Vec::new(),
            acts: Vec::new(),
            troubles: Vec::new(),
            noise: Noise::default(),
        })
    }

    fn leased() -> Self {
        Self::of(Some(LEASE_MS))
    }

    fn claiming() -> Self {
        Self::of(None)
    }

    fn asks(
        &mut self,
        call: usize,
        times: (u64, u64),
        answer: Result<super::Answer, NoAnswer>,
    ) -> usize {
        self.0.attempts.push(Attempt {
            event: 0,
            delivery: 0,
            call,
            instance: 0,
            span: span(times),
            answer,
        });
        self.0.attempts.len() - 1
    }

    fn does(&mut self, holder: usize, times: (u64, u64), deed: Deed) {
        let span = span(times);
        self.0.acts.push(Act { holder, span, deed });
    }

    /// Admitted at once, worked and confirmed.
    fn works(&mut self, call: usize, at: u64) -> usize {
        let holder = self.asks(call, (at, at + 10), Ok(Admitted));
        self.does(holder, (at + 10, at + 20), Work);
        self.does(holder, (at + 20, at + 30), Settle(Confirm, Ok(Applied)));
        holder
    }

    fn meets(&mut self, times: (u64, u64), loses: Loses) {
        self.0.troubles.push(Trouble {
            what: "trouble",
            span: span(times),
            loses,
        });
    }

    fn ends(&mut self, ending: Option<Ending>) {
        self.0.deliveries.push(Delivery { event: 0, ending });
    }

    #[track_caller]
    fn is(&self, wrong: &[Kind], counted: &[(Counted, usize)]) {
        let findings = check(&self.0);
        let kinds: Vec<Kind> = findings.wrong.iter().map(|wrong| wrong.kind).collect();
        assert_eq!(kinds, wrong, "{:#?}", findings.wrong);
        assert_eq!(findings.counted, BTreeMap::from_iter(counted.to_vec()));
    }

    /// Ends with one copy that was worked on.
    #[track_caller]
    fn worked_and_is(&mut self, wrong: &[Kind], counted: &[(Counted, usize)]) {
        self.ends(Some(Ending::Worked));
        self.is(wrong, counted);
    }
}

fn span((from, to): (u64, u64)) -> Span {
    let [from, to] = [from, to].map(Duration::from_millis);
    Span { from, to }
}

const TWICE: [(Counted, usize); 1] = [(Counted::WorkedMoreThanOnce, 1)];

#[test]
fn one_holder_and_its_copies_are_fine() {
    let mut tale = Tale::leased();
    tale.works(1, 0);
    tale.asks(2, (5, 15), Ok(InFlight));
    tale.asks(3, (5, 25), Ok(Suppressed));
    tale.asks(4, (100, 110), Ok(Suppressed));
    tale.asks(5, (100, 110), Err(NoAnswer::Refused));
    tale.ends(Some(Ending::Dropped));
    tale.worked_and_is(&[], &[]);
}

#[test]
fn a_second_holder_needs_the_end_of_the_first() {
    let check = |second: (u64, u64), wrong: &[Kind]| {
        let mut tale = Tale::leased();
        let first = tale.asks(1, (0, 10), Ok(Admitted));
        tale.does(first, (10, 20), Work);
        tale.asks(2, second, Ok(Admitted));
        tale.worked_and_is(wrong, &[]);
    };
    check((500, 510), &[Kind::TwoHolders]);
    check((5, 8), &[Kind::TwoHolders]);
    check((980, 990), &[Kind::TwoHolders]);
    check((990, 1000), &[]);
    check((1500, 1510), &[]);
}

#[test]
fn a_confirmed_or_renewed_claim_ends_later() {
    let check = |deed: Deed, second: u64, wrong: &[Kind]| {
        let mut tale = Tale::leased();
        let first = tale.asks(1, (0, 10), Ok(Admitted));
        tale.does(first, (800, 810), deed);
        tale.does(first, (820, 830), Work);
        tale.asks(2, (second, second + 10), Ok(Admitted));
        tale.worked_and_is(wrong, &[]);
    };
    check(Settle(Confirm, Ok(Applied)), 5000, &[Kind::TwoHolders]);
    check(Settle(Renew, Ok(Applied)), 1700, &[Kind::TwoHolders]);
    check(Settle(Renew, Ok(Applied)), 1800, &[]);
    // It may have been applied, or not.
    check(Settle(Confirm, Ok(StoreUnavailable)), 1200, &[]);
    check(Settle(Renew, Err(NoAnswer::Cancelled)), 1200, &[]);
    check(Settle(Release, Ok(Applied)), 805, &[]);
    check(Settle(Release, Err(NoAnswer::Cancelled)), 805, &[]);
    check(Settle(Release, Ok(Applied)), 700, &[Kind::TwoHolders]);
}

#[test]
fn a_confirmation_that_was_applied_before_its_retry_counts_from_then() {
    let mut tale = Tale::leased();
    let first = tale.asks(1, (0, 10), Ok(Admitted));
    tale.does(first, (10, 20), Work);
    let lost = Err(NoAnswer::Cancelled);
    tale.does(first, (20, 30), Settle(Confirm, lost));
    tale.does(first, (40, 50), Settle(Confirm, Ok(AlreadyApplied)));
    tale.asks(2, (30_000, 30_010), Ok(Admitted));
    tale.worked_and_is(&[Kind::TwoHolders], &[]);
}

#[test]
fn a_failover_excuses_what_was_written_just_before_it() {
    let check = |failover: (u64, u64), wrong: &[Kind], counted: &[(Counted, usize)]| {
        let mut tale = Tale::leased();
        tale.works(1, 0);
        tale.works(2, 9000);
        tale.meets(failover, Loses::LatestWrites);
        let counted = [&TWICE, counted].concat();
        tale.worked_and_is(wrong, &counted);
    };
    let excused = [(Counted::AdmittedTwiceByFailover, 1)];
    check((500, 1500), &[], &excused);
    check((0, 8000), &[], &excused);
    // Long after the claim was written, or after the second was admitted.
    check((3000, 4000), &[Kind::TwoHolders], &[]);
    check((9500, 9600), &[Kind::TwoHolders], &[]);
}

#[test]
fn a_failover_may_undo_a_release() {
    let check = |lease: Option<u64>, failover: u64, answer, wrong: &[Kind]| {
        let mut tale = Tale::of(lease);
        let first = tale.asks(1, (0, 10), Ok(Admitted));
        tale.does(first, (20, 30), Settle(Release, Ok(Applied)));
        tale.meets((failover, failover + 100), Loses::LatestWrites);
        tale.asks(2, (500, 510), Ok(answer));
        let second = tale.asks(3, (9000, 9010), Ok(Admitted));
        tale.does(second, (9010, 9020), Work);
        tale.worked_and_is(wrong, &[]);
    };
    check(Some(LEASE_MS), 100, InFlight, &[]);
    check(Some(LEASE_MS), 3000, InFlight, &[Kind::BlockedForNobody]);
    check(None, 100, Suppressed, &[]);
    check(None, 3000, Suppressed, &[Kind::SuppressedForNobody]);
}

#[test]
fn a_copy_is_dropped_only_for_confirmed_work() {
    let check = |deed: Option<Deed>, wrong: &[Kind]| {
        let mut tale = Tale::leased();
        let first = tale.asks(1, (0, 10), Ok(Admitted));
        tale.does(first, (10, 20), Work);
        if let Some(deed) = deed {
            tale.does(first, (20, 30), deed);
        }
        tale.asks(2, (25, 40), Ok(Suppressed));
        tale.ends(Some(Ending::Dropped));
        tale.worked_and_is(wrong, &[]);
    };
    let nobody = [Kind::SuppressedForNobody];
    check(None, &nobody);
    check(Some(Settle(Release, Ok(Applied))), &nobody);
    check(
        Some(Settle(Confirm, Ok(NotHeld))),
        &[Kind::SuppressedForNobody, Kind::ClaimVanished],
    );
    check(Some(Settle(Confirm, Ok(Applied))), &[]);
    check(Some(Settle(Confirm, Ok(StoreUnavailable))), &[]);
    check(Some(Settle(Confirm, Err(NoAnswer::Cancelled))), &[]);
}

#[test]
fn a_copy_is_not_dropped_before_the_confirmation_was_sent() {
    let mut tale = Tale::leased();
    let first = tale.asks(1, (0, 10), Ok(Admitted));
    tale.does(first, (10, 20), Work);
    tale.asks(2, (25, 40), Ok(Suppressed));
    tale.does(first, (50, 60), Settle(Confirm, Ok(Applied)));
    tale.worked_and_is(&[Kind::SuppressedForNobody], &[]);
}

#[test]
fn nobody_is_sent_away_for_nobody() {
    let check = |other: Result<super::Answer, NoAnswer>, asked: u64, wrong: &[Kind]| {
        let mut tale = Tale::leased();
        tale.asks(1, (0, 10), other);
        tale.asks(2, (asked, asked + 10), Ok(InFlight));
        tale.works(3, 10_000);
        tale.worked_and_is(wrong, &[]);
    };
    let blocked = [Kind::BlockedForNobody];
    check(Ok(Admitted), 1005, &[]);
    check(Ok(Admitted), 1200, &blocked);
    check(Ok(Undecided), 1200, &[]);
    check(Ok(Undecided), 6000, &blocked);
    check(Err(NoAnswer::Cancelled), 1200, &[]);
    check(Err(NoAnswer::Refused), 20, &blocked);
    check(
        Ok(InFlight),
        20,
        &[Kind::BlockedForNobody, Kind::BlockedForNobody],
    );
    // One's own earlier attempt is not another caller.
    let mut tale = Tale::leased();
    tale.asks(1, (0, 10), Err(NoAnswer::Cancelled));
    tale.asks(1, (20, 30), Ok(InFlight));
    tale.works(3, 10_000);
    tale.worked_and_is(&blocked, &[]);
}

#[test]
fn a_claim_in_force_does_not_vanish() {
    let check = |action, at: u64, wrong: &[Kind]| {
        let mut tale = Tale::leased();
        let first = tale.asks(1, (0, 10), Ok(Admitted));
        tale.does(first, (10, 20), Work);
        tale.does(first, (at, at + 10), Settle(action, Ok(NotHeld)));
        tale.worked_and_is(wrong, &[]);
    };
    for action in [Confirm, Release, Renew] {
        check(action, 500, &[Kind::ClaimVanished]);
        check(action, 1000, &[]);
    }
    let mut tale = Tale::leased();
    let first = tale.works(1, 0);
    tale.does(first, (5000, 5010), Settle(Renew, Ok(NotHeld)));
    tale.worked_and_is(&[Kind::ClaimVanished], &[]);
    // A confirmation under a stale token: released before, so that nothing vanished.
    let mut tale = Tale::leased();
    let first = tale.asks(1, (0, 10), Ok(Admitted));
    tale.does(first, (10, 20), Settle(Release, Ok(Applied)));
    tale.does(first, (30, 40), Settle(Confirm, Ok(NotHeld)));
    tale.works(2, 50);
    tale.worked_and_is(&[], &[]);
}

#[test]
fn a_stale_token_settles_nothing() {
    let mut tale = Tale::leased();
    let first = tale.asks(1, (0, 10), Ok(Admitted));
    tale.works(2, 1500);
    tale.does(first, (3000, 3010), Settle(Confirm, Ok(Applied)));
    tale.worked_and_is(&[Kind::TwoHolders], &[]);
}

#[test]
fn outcomes_have_a_reason() {
    let check = |deed: Deed, wrong: &[Kind]| {
        let mut tale = Tale::leased();
        let first = tale.asks(1, (0, 10), Ok(Admitted));
        tale.does(first, (10, 20), Work);
        tale.does(first, (20, 30), deed);
        tale.worked_and_is(wrong, &[]);
    };
    let wrong = [Kind::ImpossibleOutcome];
    check(Settle(Confirm, Ok(AlreadyApplied)), &wrong);
    check(Settle(Release, Ok(AlreadyConfirmed)), &wrong);
    check(Settle(Renew, Ok(AlreadyApplied)), &wrong);
    check(Settle(Release, Err(NoAnswer::Hung)), &[Kind::TooSlow]);
    check(Settle(Release, Err(NoAnswer::Gone)), &[Kind::TooSlow]);
}

#[test]
fn every_copy_is_decided_and_every_event_worked_on() {
    let mut tale = Tale::leased();
    tale.works(1, 0);
    tale.ends(None);
    tale.is(&[Kind::NeverDecided], &[]);
    let mut tale = Tale::leased();
    let dies = tale.asks(1, (0, 10), Ok(Admitted));
    tale.does(dies, (10, 20), Settle(Confirm, Ok(Applied)));
    tale.asks(2, (100, 110), Ok(Suppressed));
    tale.ends(Some(Ending::Dropped));
    tale.is(&[Kind::Lost], &[]);
    let mut tale = Tale::leased();
    tale.asks(1, (0, 10), Ok(Undecided));
    tale.ends(Some(Ending::GivenUp));
    tale.is(&[], &[(Counted::GivenUp, 1)]);
}

#[test]
fn a_failure_mode_is_the_namespaces_own() {
    let mut tale = Tale::leased();
    let open = tale.asks(1, (0, 10), Ok(FailedOpen));
    tale.does(open, (10, 20), Work);
    let failed_open = [(Counted::FailedOpen, 1)];
    tale.worked_and_is(&[Kind::WrongFailureMode], &failed_open);
    tale.0.events[0].mode = Mode::Open;
    tale.is(&[], &failed_open);
}

#[test]
fn a_budget_is_kept_but_for_the_machine() {
    let check = |took: u64, pulse: Option<(u64, u64)>, wrong: &[Kind]| {
        let mut tale = Tale::leased();
        tale.works(1, 0);
        tale.asks(2, (100, 100 + took), Ok(Suppressed));
        tale.0.noise.pulses.extend(pulse.map(span));
        tale.worked_and_is(wrong, &[]);
    };
    check(70, None, &[]);
    check(71, None, &[Kind::TooSlow]);
    check(90, Some((150, 160)), &[]);
    check(90, Some((250, 280)), &[Kind::TooSlow]);
    let check = |wait: u64, wrong: &[Kind]| {
        let mut tale = Tale::leased();
        tale.works(1, 0);
        tale.asks(2, (100, 190), Ok(Suppressed));
        let waited = (span((150, 160)), Duration::from_millis(wait));
        tale.0.noise.waits.push(waited);
        tale.worked_and_is(wrong, &[]);
    };
    check(19, &[Kind::TooSlow]);
    check(20, &[]);
    let mut tale = Tale::leased();
    tale.asks(1, (0, 2000), Err(NoAnswer::Hung));
    tale.works(2, 10_000);
    tale.worked_and_is(&[Kind::TooSlow], &[]);
    // A service that ended is not slow.
    let mut tale = Tale::leased();
    tale.asks(1, (0, 20), Err(NoAnswer::Gone));
    tale.works(2, 10_000);
    tale.worked_and_is(&[Kind::TooSlow], &[]);
    tale.meets((10, 10), Loses::Calls);
    tale.is(&[], &[]);
}

#[test]
fn without_a_lease_a_loss_has_a_documented_cause() {
    let check = |claim: &dyn Fn(&mut Tale), wrong: &[Kind], counted: Option<Counted>| {
        let mut tale = Tale::claiming();
        claim(&mut tale);
        tale.asks(9, (200, 210), Ok(Suppressed));
        tale.ends(Some(Ending::Dropped));
        let counted: Vec<_> = counted.map(|kind| (kind, 1)).into_iter().collect();
        tale.is(wrong, &counted);
    };
    let admitted = |tale: &mut Tale, deed: Deed| {
        let holder = tale.asks(1, (0, 10), Ok(Admitted));
        tale.does(holder, (210, 220), deed);
    };
    let lost = [Kind::Lost];
    let nobody = [Kind::SuppressedForNobody, Kind::Lost];
    check(
        &|tale| admitted(tale, Die),
        &[],
        Some(Counted::LostWithItsHolder),
    );
    let releases = Settle(Release, Ok(Applied));
    check(
        &|tale| admitted(tale, releases),
        &[],
        Some(Counted::LostAfterRelease),
    );
    let confirms = Settle(Confirm, Ok(Applied));
    check(&|tale| admitted(tale, confirms), &lost, None);
    check(&|_| {}, &nobody, None);
    let ask = |answer| {
        move |tale: &mut Tale| {
            tale.asks(1, (0, 10), answer);
        }
    };
    check(
        &ask(Ok(Undecided)),
        &[],
        Some(Counted::LostToAClaimGivenBack),
    );
    let cancelled = Err(NoAnswer::Cancelled);
    check(&ask(cancelled), &[], Some(Counted::LostWithTheAnswer));
    check(&ask(Err(NoAnswer::Refused)), &nobody, None);
    check(
        &|tale| {
            ask(Err(NoAnswer::Gone))(tale);
            tale.meets((5, 5), Loses::Calls);
        },
        &[],
        Some(Counted::LostWithTheService),
    );
    check(
        &|tale| {
            admitted(tale, releases);
            tale.meets((300, 400), Loses::LatestWrites);
        },
        &[],
        Some(Counted::LostByFailover),
    );
    // Retried, but not until it was decided.
    check(
        &|tale| {
            ask(cancelled)(tale);
            tale.asks(1, (220, 230), Ok(Undecided));
        },
        &[],
        Some(Counted::LostWithTheAnswer),
    );
    // Retried, adopted, and released.
    check(
        &|tale| {
            ask(cancelled)(tale);
            let adopted = tale.asks(1, (220, 230), Ok(Admitted));
            tale.does(adopted, (230, 240), releases);
        },
        &[],
        Some(Counted::LostAfterRelease),
    );
    // Retried under its id and answered: the answer was not lost.
    check(
        &|tale| {
            ask(cancelled)(tale);
            ask(Ok(Admitted))(tale);
        },
        &lost,
        None,
    );
}

#[test]
fn without_a_lease_nobody_is_in_flight_and_a_claim_lasts_for_the_ttl() {
    let mut tale = Tale::claiming();
    tale.works(1, 0);
    tale.asks(2, (100, 110), Ok(InFlight));
    tale.works(3, 30_000);
    let wrong = [Kind::TwoHolders, Kind::BlockedForNobody];
    tale.worked_and_is(&wrong, &TWICE);
}

#[test]
fn an_instance_that_falls_back_knows_its_own_claims_only() {
    let check = |tellers: [(usize, super::Answer); 2], wrong: &[Kind], counted: bool| {
        let mut tale = Tale::leased();
        tale.0.events[0].mode = Mode::Local;
        let mut fallbacks = 0;
        for (call, (instance, answer)) in (1..).zip(tellers) {
            let holder = tale.asks(call, (0, 10 * call as u64), Ok(answer));
            tale.0.attempts[holder].instance = instance;
            tale.does(holder, (100, 110), Work);
            fallbacks += usize::from(answer == FellBack);
        }
        let twice = (Counted::AdmittedTwiceByFallback, usize::from(counted));
        let fell_back = (Counted::FellBack, fallbacks);
        let counts = [TWICE[0], twice, fell_back];
        let counts: Vec<_> = counts.into_iter().filter(|(_, count)| *count > 0).collect();
        tale.worked_and_is(wrong, &counts);
    };
    check([(0, FellBack), (1, FellBack)], &[], true);
    check([(0, FellBack), (1, Admitted)], &[], true);
    check([(0, Admitted), (1, FellBack)], &[], true);
    // What was claimed in Redis before the outage is not known in it.
    check([(0, Admitted), (0, FellBack)], &[], true);
    check([(0, FellBack), (0, FellBack)], &[Kind::TwoHolders], false);
    check([(0, FellBack), (0, Admitted)], &[Kind::TwoHolders], false);
    check([(0, Admitted), (1, Admitted)], &[Kind::TwoHolders], false);
}

#[test]
fn an_instance_falls_back_again_in_another_outage() {
    let check = |second: u64, wrong: &[Kind], twice: usize| {
        let mut tale = Tale::leased();
        tale.0.events[0].mode = Mode::Local;
        tale.asks(1, (0, 10), Ok(FellBack));
        let again = tale.asks(2, (second - 10, second), Ok(FellBack));
        tale.does(again, (second, second + 10), Work);
        let counted = [
            (Counted::AdmittedTwiceByFallback, twice),
            (Counted::FellBack, 2),
        ];
        let counted: Vec<_> = counted
            .into_iter()
            .filter(|(_, count)| *count > 0)
            .collect();
        tale.worked_and_is(wrong, &counted);
    };
    check(20, &[Kind::TwoHolders], 0);
    check(21, &[], 1);
}

#[test]
fn a_claim_of_a_fallback_vanishes_only_for_another() {
    let check = |other: Option<super::Answer>, wrong: &[Kind], counted: &[(Counted, usize)]| {
        let mut tale = Tale::leased();
        tale.0.events[0].mode = Mode::Local;
        let first = tale.asks(1, (0, 10), Ok(FellBack));
        tale.does(first, (10, 20), Work);
        if let Some(other) = other {
            tale.asks(2, (20, 30), Ok(other));
        }
        tale.does(first, (50, 60), Settle(Confirm, Ok(NotHeld)));
        let counted = [&[(Counted::FellBack, 1)], counted].concat();
        tale.worked_and_is(wrong, &counted);
    };
    check(None, &[Kind::ClaimVanished], &[]);
    check(Some(InFlight), &[Kind::ClaimVanished], &[]);
    check(Some(Undecided), &[], &[(Counted::ClaimLostByFallback, 1)]);
}

#[test]
fn only_a_namespace_that_is_to_falls_back() {
    let mut tale = Tale::leased();
    let first = tale.asks(1, (0, 10), Ok(FellBack));
    tale.does(first, (10, 20), Work);
    tale.worked_and_is(&[Kind::WrongFailureMode], &[(Counted::FellBack, 1)]);
}
