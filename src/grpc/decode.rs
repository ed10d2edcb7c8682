//! From generated types to the domain's raw ones: borrowed, and judged by nobody here.

use uuid::Uuid;

use super::proto::{self as pb, event, ping};
use crate::{
    domain::{
        event::{RawEvent, RawPosition},
        identity::{RawIdentity, RawTransitionKind, TransitionKind},
        time::RawTime,
    },
    engine::{RequestFault, admit::AdmitOptions},
};

pub(super) fn options(request: &pb::AdmitRequest) -> Result<AdmitOptions<'_>, RequestFault> {
    let request_id = match request.request_id.as_str() {
        "" => None,
        text => Some(
            Uuid::try_parse(text)
                .ok()
                // What a client that forgot to fill it in sends, in every call.
                .filter(|id| !id.is_nil())
                .ok_or(RequestFault::BadRequestId)?
                .into_bytes(),
        ),
    };
    Ok(AdmitOptions {
        namespace: &request.namespace,
        request_id,
        omit_claims: request.omit_claims,
    })
}

pub(super) fn event(event: &pb::Event) -> RawEvent<'_> {
    RawEvent {
        identity: identity(event.identity.as_ref()),
        time: time(event.time.as_ref()),
        ingested_at: event.ingested_at.map(|at| (at.seconds, at.nanos)),
        position: position(event.identity.as_ref()),
        content_hash: event.content_hash,
    }
}

fn identity(identity: Option<&event::Identity>) -> RawIdentity<'_> {
    match identity {
        None => RawIdentity::Unset,
        Some(event::Identity::Transition(transition)) => RawIdentity::Transition {
            device_id: &transition.device_id,
            fence_id: &transition.fence_id,
            kind: transition_kind(transition.kind),
            sequence: transition.sequence,
            sequence_epoch: transition.sequence_epoch,
        },
        Some(event::Identity::Ping(ping)) => RawIdentity::Ping {
            asset_id: &ping.asset_id,
        },
        Some(event::Identity::Keyed(keyed)) => RawIdentity::Keyed {
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

fn time(time: Option<&event::Time>) -> RawTime<'_> {
    match time {
        None => RawTime::Unset,
        Some(event::Time::OccurredAt(at)) => RawTime::Timestamp {
            seconds: at.seconds,
            nanos: at.nanos,
        },
        Some(event::Time::OccurredAtText(text)) => RawTime::Text(text),
        Some(event::Time::OccurredAtUnixNanos(nanos)) => RawTime::UnixNanos(*nanos),
    }
}

fn position(identity: Option<&event::Identity>) -> RawPosition {
    let Some(event::Identity::Ping(ping)) = identity else {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn transition(kind: i32) -> pb::Event {
        let transition = pb::Transition {
            device_id: "d".to_owned(),
            fence_id: "f".to_owned(),
            kind,
            sequence: Some(0),
            sequence_epoch: 7,
        };
        pb::Event {
            identity: Some(event::Identity::Transition(transition)),
            ..pb::Event::default()
        }
    }

    fn ping(position: Option<ping::Position>) -> pb::Event {
        let ping = pb::Ping {
            asset_id: "a".to_owned(),
            position,
        };
        pb::Event {
            identity: Some(event::Identity::Ping(ping)),
            ..pb::Event::default()
        }
    }

    #[test]
    fn what_is_unset_stays_unset() {
        assert_eq!(event(&pb::Event::default()), RawEvent::default());
        let at = pb::LatLng {
            latitude: Some(0.0),
            longitude: None,
        };
        let half = event(&ping(Some(ping::Position::LatLng(at)))).position;
        assert_eq!(
            half,
            RawPosition::LatLng {
                latitude: Some(0.0),
                longitude: None
            }
        );
        assert_eq!(event(&ping(None)).position, RawPosition::Unset);
    }

    #[test]
    fn kinds_of_transition_are_known_unknown_or_absent() {
        let rows = [
            (0, None),
            (1, Some(RawTransitionKind::Known(TransitionKind::Enter))),
            (2, Some(RawTransitionKind::Known(TransitionKind::Exit))),
            (3, Some(RawTransitionKind::Known(TransitionKind::Dwell))),
            (4, Some(RawTransitionKind::Unknown(4))),
            (-1, Some(RawTransitionKind::Unknown(-1))),
        ];
        for (number, kind) in rows {
            let expected = RawIdentity::Transition {
                device_id: "d",
                fence_id: "f",
                kind,
                sequence: Some(0),
                sequence_epoch: 7,
            };
            assert_eq!(event(&transition(number)).identity, expected, "{number}");
        }
    }

    #[test]
    fn a_request_id_is_a_uuid_or_empty() {
        let rows = [
            ("", Ok(None)),
            (
                "00010203-0405-0607-0809-0a0b0c0d0e0f",
                Ok(Some(std::array::from_fn(|byte| byte as u8))),
            ),
            (
                "00010203-0405-0607-0809-0A0B0C0D0E0F",
                Ok(Some(std::array::from_fn(|byte| byte as u8))),
            ),
            (
                "00010203-0405-0607-0809-0a0b0c0d0e",
                Err(RequestFault::BadRequestId),
            ),
            ("offset-17", Err(RequestFault::BadRequestId)),
            (" ", Err(RequestFault::BadRequestId)),
            (
                "00000000-0000-0000-0000-000000000000",
                Err(RequestFault::BadRequestId),
            ),
        ];
        for (text, expected) in rows {
            let request = pb::AdmitRequest {
                request_id: text.to_owned(),
                ..pb::AdmitRequest::default()
            };
            assert_eq!(
                options(&request).map(|options| options.request_id),
                expected,
                "{text:?}"
            );
        }
    }
}
