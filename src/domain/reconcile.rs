//! What becomes of a key when a claim that was made in an outage is written to the shared store.
//!
//! Nobody's claim there is overwritten but one's own, and that one is never weakened. Records of a
//! session are joined: the events of both were seen.

use super::claim::{Nonce, Record, Standing};

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Reconciled {
    Write(Record),
    /// As [`Reconciled::Write`], held for the longer of the two times.
    Join(Record),
    /// What stands there says as much or more.
    Leave,
    /// Another's claim, or a foreign value: the event was admitted twice.
    Taken,
}

/// `found` stands under the key; `ours` was made in the outage.
pub fn reconcile(found: Option<&Standing>, ours: &Record) -> Reconciled {
    let Some(found) = found else {
        return Reconciled::Write(*ours);
    };
    let only_seen = ours.nonce == Nonce::NOBODY;
    let is_own = found
        .nonce()
        .is_some_and(|nonce| nonce.same_holder(ours.nonce));
    match found {
        Standing::Record(theirs)
            if is_session(theirs, ours) && (is_own || only_seen && theirs.state.is_settled()) =>
        {
            let sighting = theirs.sighting.with(&ours.sighting);
            Reconciled::Join(if is_own {
                let state = theirs.state.max(ours.state);
                Record {
                    state,
                    sighting,
                    ..*ours
                }
            } else {
                Record {
                    sighting,
                    ..*theirs
                }
            })
        }
        Standing::Record(theirs) if is_own && theirs.state <= ours.state => {
            Reconciled::Write(*ours)
        }
        Standing::Record(_) | Standing::Newer { .. } | Standing::Foreign => {
            if is_own || only_seen {
                Reconciled::Leave
            } else {
                Reconciled::Taken
            }
        }
    }
}

fn is_session(a: &Record, b: &Record) -> bool {
    a.sighting.is_session() && b.sighting.is_session()
}

#[cfg(test)]
mod tests {
    use super::super::{
        claim::{
            ClaimState::{self, Claimed, Confirmed, Pending},
            Sighting,
        },
        time::EventTime,
    };
    use super::*;

    const MINE: Nonce = Nonce::from_bytes([1, 2, 3, 4, 5, 6, 7, 8]);
    const OTHERS: Nonce = Nonce::from_bytes([9, 2, 3, 4, 5, 6, 7, 8]);

    fn record(nonce: Nonce, state: ClaimState, session: Option<(i64, i64)>) -> Record {
        let time = |(earliest, latest)| Sighting {
            time: Some(EventTime::from_unix_nanos(earliest)),
            latest: Some(EventTime::from_unix_nanos(latest)),
            ..Sighting::default()
        };
        Record {
            state,
            nonce,
            sighting: session.map(time).unwrap_or_default(),
        }
    }

    #[test]
    fn ones_own_claim_is_overwritten_but_not_weakened_and_anothers_is_left_alone() {
        let check = |found: Option<(Nonce, ClaimState)>, ours: ClaimState, writes: bool| {
            let found = found.map(|(nonce, state)| Standing::Record(record(nonce, state, None)));
            let ours = record(MINE.written_back(), ours, None);
            let expected = match &found {
                _ if writes => Reconciled::Write(ours),
                Some(found) if found.nonce() == Some(OTHERS) => Reconciled::Taken,
                Some(_) | None => Reconciled::Leave,
            };
            assert_eq!(reconcile(found.as_ref(), &ours), expected, "{found:?}");
        };
        for state in [Pending, Claimed, Confirmed] {
            check(None, state, true);
            check(Some((MINE, Pending)), state, true);
            check(Some((MINE, Claimed)), state, state != Pending);
            check(Some((MINE, Confirmed)), state, state == Confirmed);
            for theirs in [Pending, Claimed, Confirmed] {
                check(Some((OTHERS, theirs)), state, false);
            }
        }
        let foreign = reconcile(Some(&Standing::Foreign), &record(MINE, Confirmed, None));
        assert_eq!(foreign, Reconciled::Taken);
        for (nonce, expected) in [(MINE, Reconciled::Leave), (OTHERS, Reconciled::Taken)] {
            let (version, state) = (9, Pending);
            let newer = Standing::Newer {
                version,
                state,
                nonce,
            };
            let ours = record(MINE, Confirmed, None);
            assert_eq!(reconcile(Some(&newer), &ours), expected);
        }
    }

    #[test]
    fn sessions_are_joined_where_both_events_were_seen() {
        let check = |found: Record, ours: Record, expected: Reconciled| {
            let came_to = reconcile(Some(&Standing::Record(found)), &ours);
            assert_eq!(came_to, expected, "{found:?}, {ours:?}");
        };
        let seen = |times| record(Nonce::NOBODY, Confirmed, Some(times));
        let theirs = |state| record(OTHERS, state, Some((10, 20)));
        let mine = |state, times| record(MINE, state, Some(times));
        let join = Reconciled::Join;
        check(seen((10, 20)), seen((5, 15)), join(seen((5, 20))));
        let joined = record(OTHERS, Confirmed, Some((10, 30)));
        check(theirs(Confirmed), seen((15, 30)), join(joined));
        check(theirs(Pending), seen((15, 30)), Reconciled::Leave);
        check(
            theirs(Confirmed),
            mine(Confirmed, (0, 0)),
            Reconciled::Taken,
        );
        check(seen((10, 20)), mine(Confirmed, (0, 0)), Reconciled::Taken);
        let joined = mine(Confirmed, (0, 20));
        check(
            mine(Confirmed, (10, 20)),
            mine(Pending, (0, 0)),
            join(joined),
        );
        check(
            mine(Pending, (10, 20)),
            mine(Confirmed, (0, 0)),
            join(joined),
        );
    }
}
