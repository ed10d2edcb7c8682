//! What callers ask for, read from a message's bytes.
//!
//! As in every protobuf implementation the last of several values of a field counts, several values
//! of a message are merged, of a oneof only the last one set is left, and unknown fields are passed
//! over.

use super::reader::{Malformed, Reader};
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

impl<'a> StreamRequest<'a> {
    pub(in crate::grpc) fn read(message: &'a [u8]) -> Result<Self, Malformed> {
        let mut request = Self::default();
        let mut fields = Reader::new(message);
        while let Some((number, value)) = fields.field()? {
            match number {
                1 => request.batch_id = value.varint()?,
                2 => {
                    let mut admit = match request.operation.take() {
                        Some(Operation::Admit(admit)) => admit,
                        _ => AdmitRequest::default(),
                    };
                    admit.merge(value.message()?)?;
                    request.operation = Some(Operation::Admit(admit));
                }
                3..=5 => {
                    let action = match number {
                        3 => SettleAction::Confirm,
                        4 => SettleAction::Release,
                        _ => SettleAction::Renew,
                    };
                    let mut claims = match request.operation.take() {
                        Some(Operation::Settle(before, claims)) if before == action => claims,
                        _ => Vec::new(),
                    };
                    merge_claims(&mut claims, value.message()?)?;
                    request.operation = Some(Operation::Settle(action, claims));
                }
                _ => {}
            }
        }
        Ok(request)
    }
}

/// `ConfirmRequest`, `ReleaseRequest` and `RenewRequest` are alike.
fn merge_claims<'a>(claims: &mut Vec<&'a [u8]>, mut fields: Reader<'a>) -> Result<(), Malformed> {
    while let Some((number, value)) = fields.field()? {
        if number == 1 {
            claims.push(value.bytes()?);
        }
    }
    Ok(())
}

impl<'a> AdmitRequest<'a> {
    pub(in crate::grpc) fn read(message: &'a [u8]) -> Result<Self, Malformed> {
        let mut request = Self::default();
        request.merge(Reader::new(message))?;
        Ok(request)
    }

    fn merge(&mut self, mut fields: Reader<'a>) -> Result<(), Malformed> {
        while let Some((number, value)) = fields.field()? {
            match number {
                1 => self.namespace = value.text()?,
                2 => self.request_id = value.text()?,
                3 => self.events.push(value.bytes()?),
                4 => self.omit_claims = value.varint()? != 0,
                _ => {}
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

/// `Event`.
pub(in crate::grpc) fn event(message: &[u8]) -> Result<RawEvent<'_>, Malformed> {
    let mut event = RawEvent::default();
    let mut fields = Reader::new(message);
    while let Some((number, value)) = fields.field()? {
        match number {
            1 => merge_transition(&mut event, value.message()?)?,
            2 => merge_ping(&mut event, value.message()?)?,
            3 => merge_keyed(&mut event, value.message()?)?,
            4 => {
                let so_far = match event.time {
                    RawTime::Timestamp { seconds, nanos } => (seconds, nanos),
                    RawTime::Unset | RawTime::Text(_) | RawTime::UnixNanos(_) => (0, 0),
                };
                let (seconds, nanos) = timestamp(so_far, value.message()?)?;
                event.time = RawTime::Timestamp { seconds, nanos };
            }
            5 => event.time = RawTime::Text(value.text()?),
            6 => event.time = RawTime::UnixNanos(value.fixed64()? as i64),
            7 => {
                let so_far = event.ingested_at.unwrap_or_default();
                event.ingested_at = Some(timestamp(so_far, value.message()?)?);
            }
            8 => event.content_hash = Some(value.fixed64()?),
            _ => {}
        }
    }
    Ok(event)
}

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
    while let Some((number, value)) = fields.field()? {
        match number {
            1 => device_id = value.text()?,
            2 => fence_id = value.text()?,
            // Numbers on the wire are cut to their field's width.
            3 => kind = transition_kind(value.varint()? as i32),
            4 => sequence = Some(value.varint()?),
            5 => sequence_epoch = value.varint()? as u32,
            _ => {}
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

fn merge_ping<'a>(event: &mut RawEvent<'a>, mut fields: Reader<'a>) -> Result<(), Malformed> {
    let (mut asset_id, mut position) = match event.identity {
        RawIdentity::Ping { asset_id } => (asset_id, event.position),
        RawIdentity::Unset | RawIdentity::Transition { .. } | RawIdentity::Keyed { .. } => {
            ("", RawPosition::Unset)
        }
    };
    while let Some((number, value)) = fields.field()? {
        match number {
            1 => asset_id = value.text()?,
            2 => position = lat_lng(position, value.message()?)?,
            3 => position = projected(position, value.message()?)?,
            _ => {}
        }
    }
    event.position = position;
    event.identity = RawIdentity::Ping { asset_id };
    Ok(())
}

fn lat_lng(so_far: RawPosition, mut fields: Reader<'_>) -> Result<RawPosition, Malformed> {
    let (mut latitude, mut longitude) = match so_far {
        RawPosition::LatLng {
            latitude,
            longitude,
        } => (latitude, longitude),
        RawPosition::Unset | RawPosition::Projected { .. } => (None, None),
    };
    while let Some((number, value)) = fields.field()? {
        match number {
            1 => latitude = Some(value.double()?),
            2 => longitude = Some(value.double()?),
            _ => {}
        }
    }
    Ok(RawPosition::LatLng {
        latitude,
        longitude,
    })
}

fn projected(so_far: RawPosition, mut fields: Reader<'_>) -> Result<RawPosition, Malformed> {
    let (mut x, mut y, mut epsg) = match so_far {
        RawPosition::Projected { x, y, epsg } => (x, y, epsg),
        RawPosition::Unset | RawPosition::LatLng { .. } => (None, None, 0),
    };
    while let Some((number, value)) = fields.field()? {
        match number {
            1 => x = Some(value.double()?),
            2 => y = Some(value.double()?),
            3 => epsg = value.varint()? as u32,
            _ => {}
        }
    }
    Ok(RawPosition::Projected { x, y, epsg })
}

fn merge_keyed<'a>(event: &mut RawEvent<'a>, mut fields: Reader<'a>) -> Result<(), Malformed> {
    let mut event_id = match event.identity {
        RawIdentity::Keyed { event_id } => event_id,
        RawIdentity::Unset | RawIdentity::Transition { .. } | RawIdentity::Ping { .. } => "",
    };
    while let Some((number, value)) = fields.field()? {
        if number == 1 {
            event_id = value.text()?;
        }
    }
    event.position = RawPosition::Unset;
    event.identity = RawIdentity::Keyed { event_id };
    Ok(())
}

/// Seconds and nanos of a `google.protobuf.Timestamp`.
fn timestamp(so_far: (i64, i32), mut fields: Reader<'_>) -> Result<(i64, i32), Malformed> {
    let (mut seconds, mut nanos) = so_far;
    while let Some((number, value)) = fields.field()? {
        match number {
            1 => seconds = value.varint()? as i64,
            2 => nanos = value.varint()? as i32,
            _ => {}
        }
    }
    Ok((seconds, nanos))
}
