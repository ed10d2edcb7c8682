//! What callers ask for, read from a message's bytes.
//!
//! As in every protobuf implementation the last of several values of a field counts, several values
//! of a message are merged, of a oneof only the last one set is left, and unknown fields are passed
//! over.

use super::reader::{Key, Malformed, Reader};
use crate::domain::{
    claim::SettleAction,
    event::{RawEvent, RawPosition},
    identity::{RawIdentity, RawTransitionKind, TransitionKind},
    time::RawTime,
};

/// `StreamRequest`.
#[derive(Debug, Default)]
pub(in crate::grpc) struct StreamRequest<'a> {
    pub(in crate::grpc) batch_id: u64,
    pub(in crate::grpc) operation: Option<Operation<'a>>,
}

#[derive(Debug)]
pub(in crate::grpc) enum Operation<'a> {
    Admit(AdmitRequest<'a>),
    /// With the tokens.
    Settle(SettleAction, Vec<&'a [u8]>),
}

/// `AdmitRequest`; its events are read one by one, when they are planned.
#[derive(Debug, Default)]
pub(in crate::grpc) struct AdmitRequest<'a> {
    pub(in crate::grpc) namespace: &'a str,
    pub(in crate::grpc) request_id: &'a str,
    pub(in crate::grpc) omit_claims: bool,
    events: Vec<&'a [u8]>,
}

const BATCH_ID: Key = Key::varint(1);
const ADMIT: Key = Key::bytes(2);
const CONFIRM: Key = Key::bytes(3);
const RELEASE: Key = Key::bytes(4);
const RENEW: Key = Key::bytes(5);

impl<'a> StreamRequest<'a> {
    pub(in crate::grpc) fn read(message: &'a [u8]) -> Result<Self, Malformed> {
        let mut request = Self::default();
        let mut fields = Reader::new(message);
        while let Some(key) = fields.key()? {
            match key {
                BATCH_ID => request.batch_id = fields.varint()?,
                ADMIT | CONFIRM | RELEASE | RENEW => {
                    let before = request.operation.take();
                    request.operation = Some(merge_operation(before, key, fields.message()?)?);
                }
                other => fields.pass(other, 5)?,
            }
        }
        Ok(request)
    }
}

fn merge_operation<'a>(
    before: Option<Operation<'a>>,
    key: Key,
    part: Reader<'a>,
) -> Result<Operation<'a>, Malformed> {
    let action = match key {
        CONFIRM => SettleAction::Confirm,
        RELEASE => SettleAction::Release,
        RENEW => SettleAction::Renew,
        _ => {
            let mut admit = match before {
                Some(Operation::Admit(admit)) => admit,
                Some(Operation::Settle(..)) | None => AdmitRequest::default(),
            };
            admit.merge(part)?;
            return Ok(Operation::Admit(admit));
        }
    };
    let mut claims = match before {
        Some(Operation::Settle(same, claims)) if same == action => claims,
        Some(_) | None => Vec::new(),
    };
    merge_claims(&mut claims, part)?;
    Ok(Operation::Settle(action, claims))
}

const CLAIM: Key = Key::bytes(1);

/// `ConfirmRequest`, `ReleaseRequest` and `RenewRequest` are alike.
fn merge_claims<'a>(claims: &mut Vec<&'a [u8]>, mut fields: Reader<'a>) -> Result<(), Malformed> {
    while let Some(key) = fields.key()? {
        match key {
            CLAIM => claims.push(fields.bytes()?),
            other => fields.pass(other, 1)?,
        }
    }
    Ok(())
}

const NAMESPACE: Key = Key::bytes(1);
const REQUEST_ID: Key = Key::bytes(2);
const EVENTS: Key = Key::bytes(3);
const OMIT_CLAIMS: Key = Key::varint(4);

impl<'a> AdmitRequest<'a> {
    pub(in crate::grpc) fn read(message: &'a [u8]) -> Result<Self, Malformed> {
        let mut request = Self::default();
        request.merge(Reader::new(message))?;
        Ok(request)
    }

    fn merge(&mut self, mut fields: Reader<'a>) -> Result<(), Malformed> {
        while let Some(key) = fields.key()? {
            match key {
                NAMESPACE => self.namespace = fields.text()?,
                REQUEST_ID => self.request_id = fields.text()?,
                EVENTS => self.events.push(fields.bytes()?),
                OMIT_CLAIMS => self.omit_claims = fields.varint()? != 0,
                other => fields.pass(other, 4)?,
            }
        }
        Ok(())
    }

    pub(in crate::grpc) fn events(
        &self,
    ) -> impl ExactSizeIterator<Item = Result<RawEvent<'a>, Malformed>> + use<'a, '_> {
        self.events.iter().map(|message| event(message))
    }
}

const TRANSITION: Key = Key::bytes(1);
const PING: Key = Key::bytes(2);
const KEYED: Key = Key::bytes(3);
const OCCURRED_AT: Key = Key::bytes(4);
const OCCURRED_AT_TEXT: Key = Key::bytes(5);
const OCCURRED_AT_UNIX_NANOS: Key = Key::fixed64(6);
const INGESTED_AT: Key = Key::bytes(7);
const CONTENT_HASH: Key = Key::fixed64(8);

/// `Event`.
pub(in crate::grpc) fn event(message: &[u8]) -> Result<RawEvent<'_>, Malformed> {
    let mut event = RawEvent::default();
    let mut fields = Reader::new(message);
    while let Some(key) = fields.key()? {
        match key {
            TRANSITION => merge_transition(&mut event, fields.message()?)?,
            PING => merge_ping(&mut event, fields.message()?)?,
            KEYED => merge_keyed(&mut event, fields.message()?)?,
            OCCURRED_AT => {
                let so_far = match event.time {
                    RawTime::Timestamp { seconds, nanos } => (seconds, nanos),
                    RawTime::Unset | RawTime::Text(_) | RawTime::UnixNanos(_) => (0, 0),
                };
                let (seconds, nanos) = timestamp(so_far, fields.message()?)?;
                event.time = RawTime::Timestamp { seconds, nanos };
            }
            OCCURRED_AT_TEXT => event.time = RawTime::Text(fields.text()?),
            OCCURRED_AT_UNIX_NANOS => event.time = RawTime::UnixNanos(fields.fixed64()? as i64),
            INGESTED_AT => {
                let so_far = event.ingested_at.unwrap_or_default();
                event.ingested_at = Some(timestamp(so_far, fields.message()?)?);
            }
            CONTENT_HASH => event.content_hash = Some(fields.fixed64()?),
            other => fields.pass(other, 8)?,
        }
    }
    Ok(event)
}

const DEVICE_ID: Key = Key::bytes(1);
const FENCE_ID: Key = Key::bytes(2);
const KIND: Key = Key::varint(3);
const SEQUENCE: Key = Key::varint(4);
const SEQUENCE_EPOCH: Key = Key::varint(5);

fn merge_transition<'a>(event: &mut RawEvent<'a>, mut fields: Reader<'a>) -> Result<(), Malformed> {
    let (mut device_id, mut fence_id, mut kind, mut sequence, mut sequence_epoch) =
        match event.identity {
            RawIdentity::Transition {
                device_id,
                fence_id,
                kind,
                sequence,
                sequence_epoch,
            } => (device_id, fence_id, kind, sequence, sequence_epoch),
            RawIdentity::Unset | RawIdentity::Ping { .. } | RawIdentity::Keyed { .. } => {
                ("", "", None, None, 0)
            }
        };
    while let Some(key) = fields.key()? {
        match key {
            DEVICE_ID => device_id = fields.text()?,
            FENCE_ID => fence_id = fields.text()?,
            // Numbers on the wire are cut to their field's width.
            KIND => kind = transition_kind(fields.varint()? as i32),
            SEQUENCE => sequence = Some(fields.varint()?),
            SEQUENCE_EPOCH => sequence_epoch = fields.varint()? as u32,
            other => fields.pass(other, 5)?,
        }
    }
    event.position = RawPosition::Unset;
    event.identity = RawIdentity::Transition {
        device_id,
        fence_id,
        kind,
        sequence,
        sequence_epoch,
    };
    Ok(())
}

fn transition_kind(number: i32) -> Option<RawTransitionKind> {
    Some(match number {
        0 => return None,
        1 => RawTransitionKind::Known(TransitionKind::Enter),
        2 => RawTransitionKind::Known(TransitionKind::Exit),
        3 => RawTransitionKind::Known(TransitionKind::Dwell),
        unknown => RawTransitionKind::Unknown(unknown),
    })
}

const ASSET_ID: Key = Key::bytes(1);
const LAT_LNG: Key = Key::bytes(2);
const PROJECTED: Key = Key::bytes(3);

fn merge_ping<'a>(event: &mut RawEvent<'a>, mut fields: Reader<'a>) -> Result<(), Malformed> {
    let (mut asset_id, mut position) = match event.identity {
        RawIdentity::Ping { asset_id } => (asset_id, event.position),
        RawIdentity::Unset | RawIdentity::Transition { .. } | RawIdentity::Keyed { .. } => {
            ("", RawPosition::Unset)
        }
    };
    while let Some(key) = fields.key()? {
        match key {
            ASSET_ID => asset_id = fields.text()?,
            LAT_LNG => position = lat_lng(position, fields.message()?)?,
            PROJECTED => position = projected(position, fields.message()?)?,
            other => fields.pass(other, 3)?,
        }
    }
    event.position = position;
    event.identity = RawIdentity::Ping { asset_id };
    Ok(())
}

const LATITUDE: Key = Key::fixed64(1);
const LONGITUDE: Key = Key::fixed64(2);

fn lat_lng(so_far: RawPosition, mut fields: Reader<'_>) -> Result<RawPosition, Malformed> {
    let (mut latitude, mut longitude) = match so_far {
        RawPosition::LatLng {
            latitude,
            longitude,
        } => (latitude, longitude),
        RawPosition::Unset | RawPosition::Projected { .. } => (None, None),
    };
    while let Some(key) = fields.key()? {
        match key {
            LATITUDE => latitude = Some(fields.double()?),
            LONGITUDE => longitude = Some(fields.double()?),
            other => fields.pass(other, 2)?,
        }
    }
    Ok(RawPosition::LatLng {
        latitude,
        longitude,
    })
}

const X: Key = Key::fixed64(1);
const Y: Key = Key::fixed64(2);
const EPSG: Key = Key::varint(3);

fn projected(so_far: RawPosition, mut fields: Reader<'_>) -> Result<RawPosition, Malformed> {
    let (mut x, mut y, mut epsg) = match so_far {
        RawPosition::Projected { x, y, epsg } => (x, y, epsg),
        RawPosition::Unset | RawPosition::LatLng { .. } => (None, None, 0),
    };
    while let Some(key) = fields.key()? {
        match key {
            X => x = Some(fields.double()?),
            Y => y = Some(fields.double()?),
            EPSG => epsg = fields.varint()? as u32,
            other => fields.pass(other, 3)?,
        }
    }
    Ok(RawPosition::Projected { x, y, epsg })
}

const EVENT_ID: Key = Key::bytes(1);

fn merge_keyed<'a>(event: &mut RawEvent<'a>, mut fields: Reader<'a>) -> Result<(), Malformed> {
    let mut event_id = match event.identity {
        RawIdentity::Keyed { event_id } => event_id,
        RawIdentity::Unset | RawIdentity::Transition { .. } | RawIdentity::Ping { .. } => "",
    };
    while let Some(key) = fields.key()? {
        match key {
            EVENT_ID => event_id = fields.text()?,
            other => fields.pass(other, 1)?,
        }
    }
    event.position = RawPosition::Unset;
    event.identity = RawIdentity::Keyed { event_id };
    Ok(())
}

const SECONDS: Key = Key::varint(1);
const NANOS: Key = Key::varint(2);

/// Seconds and nanos of a `google.protobuf.Timestamp`.
fn timestamp(so_far: (i64, i32), mut fields: Reader<'_>) -> Result<(i64, i32), Malformed> {
    let (mut seconds, mut nanos) = so_far;
    while let Some(key) = fields.key()? {
        match key {
            SECONDS => seconds = fields.varint()? as i64,
            NANOS => nanos = fields.varint()? as i32,
            other => fields.pass(other, 2)?,
        }
    }
    Ok((seconds, nanos))
}
