//! What is read by hand against what prost reads, of good messages and of spoilt ones.

use prost::Message;
use rand::{Rng, RngCore, SeedableRng, seq::IndexedRandom};
use rand_chacha::ChaCha8Rng;

use super::{AdmitRequest, Malformed, Operation, StreamRequest, event};
use crate::{
    domain::{
        claim::SettleAction,
        event::{RawEvent, RawPosition},
        identity::{RawIdentity, RawTransitionKind, TransitionKind},
        time::RawTime,
    },
    grpc::proto::{self as pb, event as event_pb, ping, stream_request},
};

fn raw(event: &pb::Event) -> RawEvent<'_> {
    RawEvent {
        identity: identity(event.identity.as_ref()),
        time: time(event.time.as_ref()),
        ingested_at: event.ingested_at.map(|at| (at.seconds, at.nanos)),
        position: position(event.identity.as_ref()),
        content_hash: event.content_hash,
    }
}

fn identity(identity: Option<&event_pb::Identity>) -> RawIdentity<'_> {
    match identity {
        None => RawIdentity::Unset,
        Some(event_pb::Identity::Transition(transition)) => RawIdentity::Transition {
            device_id: &transition.device_id,
            fence_id: &transition.fence_id,
            kind: transition_kind(transition.kind),
            sequence: transition.sequence,
            sequence_epoch: transition.sequence_epoch,
        },
        Some(event_pb::Identity::Ping(ping)) => RawIdentity::Ping {
            asset_id: &ping.asset_id,
        },
        Some(event_pb::Identity::Keyed(keyed)) => RawIdentity::Keyed {
            event_id: &keyed.event_id,
        },
    }
}

fn transition_kind(number: i32) -> Option<RawTransitionKind> {
    match pb::TransitionKind::try_from(number) {
        Ok(pb::TransitionKind::Unspecified) => None,
        Ok(pb::TransitionKind::Enter) => Some(RawTransitionKind::Known(TransitionKind::Enter)),
        Ok(pb::TransitionKind::Exit) => Some(RawTransitionKind::Known(TransitionKind::Exit)),
        Ok(pb::TransitionKind::Dwell) => Some(RawTransitionKind::Known(TransitionKind::Dwell)),
        Err(_) => Some(RawTransitionKind::Unknown(number)),
    }
}

fn time(time: Option<&event_pb::Time>) -> RawTime<'_> {
    match time {
        None => RawTime::Unset,
        Some(event_pb::Time::OccurredAt(at)) => RawTime::Timestamp {
            seconds: at.seconds,
            nanos: at.nanos,
        },
        Some(event_pb::Time::OccurredAtText(text)) => RawTime::Text(text),
        Some(event_pb::Time::OccurredAtUnixNanos(nanos)) => RawTime::UnixNanos(*nanos),
    }
}

fn position(identity: Option<&event_pb::Identity>) -> RawPosition {
    let Some(event_pb::Identity::Ping(ping)) = identity else {
        return RawPosition::Unset;
    };
    match ping.position {
        None => RawPosition::Unset,
        Some(ping::Position::LatLng(at)) => RawPosition::LatLng {
            latitude: at.latitude,
            longitude: at.longitude,
        },
        Some(ping::Position::Projected(at)) => RawPosition::Projected {
            x: at.x,
            y: at.y,
            epsg: at.epsg,
        },
    }
}

/// Numbers at the edges of their encodings.
const NUMBERS: [u64; 10] = [
    0,
    1,
    3,
    127,
    128,
    16_383,
    16_384,
    u32::MAX as u64,
    1 << 63,
    u64::MAX,
];

fn number(random: &mut ChaCha8Rng) -> u64 {
    *NUMBERS.choose(random).expect("numbers")
}

fn text(random: &mut ChaCha8Rng) -> String {
    let texts = ["", "a", "device-17", "Zürich|\\", "\u{1f6e9}"];
    let text = texts.choose(random).expect("texts");
    text.repeat(random.random_range(1..20))
}

fn maybe<T>(random: &mut ChaCha8Rng, make: impl FnOnce(&mut ChaCha8Rng) -> T) -> Option<T> {
    random.random_bool(0.7).then(|| make(random))
}

fn timestamp(random: &mut ChaCha8Rng) -> prost_types::Timestamp {
    prost_types::Timestamp {
        seconds: number(random) as i64,
        nanos: number(random) as i32,
    }
}

fn double(random: &mut ChaCha8Rng) -> f64 {
    *[0.0, -0.0, 47.5, f64::NAN, f64::NEG_INFINITY]
        .choose(random)
        .expect("doubles")
}

fn any_event(random: &mut ChaCha8Rng) -> pb::Event {
    let identity = match random.random_range(0..4) {
        0 => None,
        1 => Some(event_pb::Identity::Transition(pb::Transition {
            device_id: text(random),
            fence_id: text(random),
            kind: number(random) as i32,
            sequence: maybe(random, number),
            sequence_epoch: number(random) as u32,
        })),
        2 => Some(event_pb::Identity::Ping(pb::Ping {
            asset_id: text(random),
            position: match random.random_range(0..3) {
                0 => None,
                1 => Some(ping::Position::LatLng(pb::LatLng {
                    latitude: maybe(random, double),
                    longitude: maybe(random, double),
                })),
                _ => Some(ping::Position::Projected(pb::ProjectedPoint {
                    x: maybe(random, double),
                    y: maybe(random, double),
                    epsg: number(random) as u32,
                })),
            },
        })),
        _ => Some(event_pb::Identity::Keyed(pb::Keyed {
            event_id: text(random),
        })),
    };
    let time = match random.random_range(0..4) {
        0 => None,
        1 => Some(event_pb::Time::OccurredAt(timestamp(random))),
        2 => Some(event_pb::Time::OccurredAtText(text(random))),
        _ => Some(event_pb::Time::OccurredAtUnixNanos(number(random) as i64)),
    };
    pb::Event {
        identity,
        time,
        ingested_at: maybe(random, timestamp),
        content_hash: maybe(random, number),
    }
}

fn any_request(random: &mut ChaCha8Rng) -> pb::StreamRequest {
    let claims = |random: &mut ChaCha8Rng| {
        let count = random.random_range(0..4);
        (0..count).map(|_| text(random).into()).collect()
    };
    let operation = match random.random_range(0..5) {
        0 => None,
        1 => Some(stream_request::Operation::Confirm(pb::ConfirmRequest {
            claims: claims(random),
        })),
        2 => Some(stream_request::Operation::Release(pb::ReleaseRequest {
            claims: claims(random),
        })),
        3 => Some(stream_request::Operation::Renew(pb::RenewRequest {
            claims: claims(random),
        })),
        _ => {
            let count = random.random_range(0..4);
            Some(stream_request::Operation::Admit(pb::AdmitRequest {
                namespace: text(random),
                request_id: text(random),
                events: (0..count).map(|_| any_event(random)).collect(),
                omit_claims: random.random(),
            }))
        }
    };
    pb::StreamRequest {
        batch_id: number(random),
        operation,
    }
}

/// A field that the API does not have, or has with another type.
fn stranger(random: &mut ChaCha8Rng) -> Vec<u8> {
    let mut bytes = Vec::new();
    let field = |wire_type: u8| [1_u8, 4, 7, 15][wire_type as usize % 4] << 3 | wire_type;
    match random.random_range(0..6) {
        0 => bytes.extend([field(0), 0x96, 1]),
        1 => bytes.extend([field(1), 1, 2, 3, 4, 5, 6, 7, 8]),
        2 => bytes.extend([field(2), 2, 8, 1]),
        3 => bytes.extend([15 << 3 | 3, 8, 1, 1 << 3 | 3, 1 << 3 | 4, 15 << 3 | 4]),
        4 => bytes.extend([field(5), 1, 2, 3, 4]),
        _ => bytes.extend([0xf8, 0xff, 0xff, 0xff, 0x0f, 1]),
    }
    bytes
}

/// Cuts, changes and doubles bytes, and puts fields of others between.
fn spoil(message: &mut Vec<u8>, random: &mut ChaCha8Rng) {
    let at = |message: &[u8], random: &mut ChaCha8Rng| random.random_range(0..=message.len());
    match random.random_range(0..6) {
        0 => message.truncate(at(message, random)),
        1 => {
            let place = at(message, random);
            if let Some(byte) = message.get_mut(place) {
                *byte ^= 1 << random.random_range(0..8);
            }
        }
        2 => message.extend(stranger(random)),
        3 => {
            let mut before = stranger(random);
            before.append(message);
            *message = before;
        }
        4 => {
            let place = at(message, random);
            message.insert(place, random.next_u32() as u8);
        }
        // What comes twice is merged.
        _ => message.extend_from_within(..),
    }
}

/// NaN is not equal to itself.
#[track_caller]
fn assert_alike(ours: &RawEvent<'_>, theirs: &RawEvent<'_>, message: &[u8]) {
    assert_eq!(format!("{ours:?}"), format!("{theirs:?}"), "{message:02x?}");
}

#[track_caller]
fn check_event(message: &[u8]) -> bool {
    match (event(message), pb::Event::decode(message)) {
        (Ok(ours), Ok(theirs)) => {
            assert_alike(&ours, &raw(&theirs), message);
            true
        }
        (Err(_), Err(_)) => false,
        (ours, theirs) => panic!("{ours:?} is not {theirs:?} of {message:02x?}"),
    }
}

/// Events are read later than the request around them, and must be as good or as bad.
fn read_all<'a>(request: &StreamRequest<'a>) -> Result<Vec<RawEvent<'a>>, Malformed> {
    match &request.operation {
        Some(Operation::Admit(admit)) => admit.events().collect(),
        Some(Operation::Settle(..)) | None => Ok(Vec::new()),
    }
}

#[track_caller]
fn check_request(message: &[u8]) -> bool {
    let ours = StreamRequest::read(message);
    let ours = ours.and_then(|request| Ok((read_all(&request)?, request)));
    let (ours, theirs) = match (ours, pb::StreamRequest::decode(message)) {
        (Ok(ours), Ok(theirs)) => (ours, theirs),
        // An operation that another one replaced is not read to its end.
        (Ok(_) | Err(_), Err(_)) => return false,
        (Err(why), Ok(theirs)) => panic!("{why} but {theirs:?} of {message:02x?}"),
    };
    let (events, request) = ours;
    assert_eq!(request.batch_id, theirs.batch_id);
    let (action, claims) = match (request.operation, theirs.operation) {
        (None, None) => return true,
        (Some(Operation::Admit(ours)), Some(stream_request::Operation::Admit(theirs))) => {
            assert_eq!(ours.namespace, theirs.namespace);
            assert_eq!(ours.request_id, theirs.request_id);
            assert_eq!(ours.omit_claims, theirs.omit_claims);
            assert_eq!(events.len(), theirs.events.len());
            for (ours, theirs) in events.iter().zip(&theirs.events) {
                assert_alike(ours, &raw(theirs), message);
            }
            return true;
        }
        (Some(Operation::Settle(action, ours)), Some(theirs)) => {
            let theirs = match theirs {
                stream_request::Operation::Confirm(confirm) => {
                    (SettleAction::Confirm, confirm.claims)
                }
                stream_request::Operation::Release(release) => {
                    (SettleAction::Release, release.claims)
                }
                stream_request::Operation::Renew(renew) => (SettleAction::Renew, renew.claims),
                stream_request::Operation::Admit(_) => panic!("{action:?} of an Admit"),
            };
            assert_eq!(action, theirs.0);
            (ours, theirs.1)
        }
        (ours, theirs) => panic!("{ours:?} is not {theirs:?}"),
    };
    assert_eq!(action.len(), claims.len());
    assert!(
        action
            .iter()
            .zip(&claims)
            .all(|(ours, theirs)| *ours == *theirs)
    );
    true
}

#[test]
fn what_prost_reads_is_read_alike_and_what_it_refuses_is_refused() {
    let mut random = ChaCha8Rng::seed_from_u64(2);
    let (mut good, mut bad) = (0, 0);
    for round in 0..60_000 {
        let (is_event, mut message) = if round % 2 == 0 {
            (true, any_event(&mut random).encode_to_vec())
        } else {
            (false, any_request(&mut random).encode_to_vec())
        };
        for _ in 0..round % 5 {
            spoil(&mut message, &mut random);
        }
        let read = if is_event {
            check_event(&message)
        } else {
            check_request(&message)
        };
        if read { good += 1 } else { bad += 1 }
    }
    assert!(good > 20_000 && bad > 10_000, "{good} good, {bad} bad");
}

#[test]
fn an_operation_that_comes_in_parts_is_merged_and_the_last_one_counts() {
    let admit = |namespace: &str, events: usize| pb::StreamRequest {
        batch_id: 0,
        operation: Some(stream_request::Operation::Admit(pb::AdmitRequest {
            namespace: namespace.to_owned(),
            events: vec![pb::Event::default(); events],
            ..pb::AdmitRequest::default()
        })),
    };
    let confirm = pb::StreamRequest {
        batch_id: 0,
        operation: Some(stream_request::Operation::Confirm(pb::ConfirmRequest {
            claims: vec!["token".into()],
        })),
    };
    let joined = |parts: &[&pb::StreamRequest]| -> Vec<u8> {
        parts.iter().flat_map(|part| part.encode_to_vec()).collect()
    };
    let (one, two) = (admit("a", 1), admit("", 2));
    let message = joined(&[&one, &two]);
    let request = StreamRequest::read(&message).expect("a request");
    let Some(Operation::Admit(merged)) = request.operation else {
        panic!("{request:?}");
    };
    assert_eq!((merged.namespace, merged.events().len()), ("a", 3));
    for parts in [vec![&one, &confirm, &two], vec![&confirm, &one, &confirm]] {
        assert!(check_request(&joined(&parts)));
    }
}

#[test]
fn a_request_that_cannot_be_read_says_why() {
    let rows: [(&[u8], Malformed); 9] = [
        (&[0x0a], Malformed::Truncated),
        (&[0x0a, 5, b'a'], Malformed::Truncated),
        (&[0x20, 0x80], Malformed::Truncated),
        (
            &[0x20, 255, 255, 255, 255, 255, 255, 255, 255, 255, 2],
            Malformed::Varint,
        ),
        (&[0x00, 1], Malformed::FieldNumber),
        (&[0x08, 1], Malformed::WireType),
        (&[0x0e, 1], Malformed::WireType),
        (&[0x0a, 1, 0xff], Malformed::Utf8),
        (&[0x7b, 0x7b, 0x7c], Malformed::Truncated),
    ];
    for (message, why) in rows {
        assert_eq!(
            AdmitRequest::read(message).expect_err("unreadable"),
            why,
            "{message:02x?}"
        );
        assert!(pb::AdmitRequest::decode(message).is_err(), "{message:02x?}");
    }
    for groups in [&[0x7c][..], &[0x7b, 0x74], &[0x7b; 200]] {
        assert_eq!(
            AdmitRequest::read(groups).expect_err("unreadable"),
            Malformed::Group
        );
        assert!(pb::AdmitRequest::decode(groups).is_err());
    }
}
