//! `AdmitResponse`, alone or in a `StreamResponse`, written to bytes.

use std::time::Duration;

use super::codec::Encoded;
use crate::{
    domain::{time::EventTime, token::Token, verdict::Verdict},
    engine::admit::Admission,
    grpc::encode,
};

/// Of an answer on a stream, before it: number and length of both fields.
const HEADROOM: usize = 1 + 10 + 1 + 5;
/// Of a verdict, the token of a transition or a ping included; more makes the buffer grow.
const USUAL_VERDICT_BYTES: usize = 52;

const VARINT: u8 = 0;
const BYTES: u8 = 2;

/// The key of a field whose number is below 16.
const fn key(number: u8, wire_type: u8) -> u8 {
    number << 3 | wire_type
}

/// An encoded `AdmitResponse`.
#[derive(Debug)]
pub(in crate::grpc) struct AdmitResponse {
    /// Behind the headroom.
    buffer: Vec<u8>,
}

impl AdmitResponse {
    pub(in crate::grpc) fn new(admission: &Admission, omit_claims: bool) -> Self {
        let usual = admission.verdicts().len() * USUAL_VERDICT_BYTES;
        let mut buffer = Vec::with_capacity(HEADROOM + usual);
        buffer.resize(HEADROOM, 0);
        let shadow = admission.is_shadow();
        for (verdict, token) in admission.answers() {
            nested(1, &mut buffer, |out| {
                write_verdict(verdict, token.as_ref(), shadow, out);
            });
        }
        if let Some(lease) = encode::lease(admission.policy(), omit_claims) {
            nested(2, &mut buffer, |out| write_duration(lease, out));
        }
        Self { buffer }
    }

    pub(in crate::grpc) fn alone(self) -> Encoded {
        Encoded(bytes::Bytes::from(self.buffer).slice(HEADROOM..))
    }

    pub(in crate::grpc) fn on_stream(mut self, batch_id: u64) -> Encoded {
        let len = self.buffer.len() - HEADROOM;
        let mut head = Vec::with_capacity(HEADROOM);
        number(1, batch_id, &mut head);
        head.push(key(2, BYTES));
        varint(len as u64, &mut head);
        let start = HEADROOM - head.len();
        self.buffer[start..HEADROOM].copy_from_slice(&head);
        Encoded(bytes::Bytes::from(self.buffer).slice(start..))
    }
}

fn write_verdict(verdict: &Verdict, token: Option<&Token<'_>>, shadow: bool, out: &mut Vec<u8>) {
    let (decision, retry_after) = encode::decided(verdict, shadow);
    number(1, decision as u64, out);
    number(2, verdict.reason as u64, out);
    if let Some(token) = token {
        out.push(key(3, BYTES));
        varint(Token::encoded_bytes(&token.key) as u64, out);
        token.encode(out);
    }
    if let Some(retry_after) = retry_after {
        nested(4, out, |out| write_duration(retry_after, out));
    }
    if let Some(time) = verdict.first_occurred_at {
        nested(5, out, |out| write_timestamp(time, out));
    }
    number(6, verdict.degraded.into(), out);
    number(7, shadow.into(), out);
    if let Some(detail) = verdict
        .detail
        .as_deref()
        .filter(|detail| !detail.is_empty())
    {
        out.push(key(8, BYTES));
        varint(detail.len() as u64, out);
        out.extend_from_slice(detail.as_bytes());
    }
    if let Some(index) = verdict.copy_of_index {
        out.push(key(9, VARINT));
        varint(index.into(), out);
    }
    number(10, verdict.time_clamped.into(), out);
}

fn write_duration(span: Duration, out: &mut Vec<u8>) {
    let prost_types::Duration { seconds, nanos } = encode::duration(span);
    seconds_and_nanos(seconds, nanos, out);
}

fn write_timestamp(time: EventTime, out: &mut Vec<u8>) {
    let (seconds, nanos) = time.seconds_and_nanos();
    seconds_and_nanos(seconds, nanos, out);
}

fn seconds_and_nanos(seconds: i64, nanos: i32, out: &mut Vec<u8>) {
    // Negative ones are written as 64 bits of two's complement.
    number(1, seconds as u64, out);
    number(2, i64::from(nanos) as u64, out);
}

/// A field with a number; zero is left out.
#[inline]
fn number(field: u8, value: u64, out: &mut Vec<u8>) {
    match value {
        0 => {}
        1..0x80 => out.extend_from_slice(&[key(field, VARINT), value as u8]),
        _ => {
            out.push(key(field, VARINT));
            varint(value, out);
        }
    }
}

/// A field with what `write` writes, and its length before it.
#[inline]
fn nested(field: u8, out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    out.extend_from_slice(&[key(field, BYTES), 0]);
    let start = out.len();
    write(out);
    let len = out.len() - start;
    if len < 0x80 {
        out[start - 1] = len as u8;
    } else {
        let mut longer = Vec::with_capacity(10);
        varint(len as u64, &mut longer);
        out.splice(start - 1..start, longer);
    }
}

#[inline]
fn varint(mut value: u64, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

#[cfg(test)]
mod tests {
    use prost::Message;

    use super::*;
    use crate::{
        domain::{
            claim::Nonce,
            key::{KeyName, Partition},
            policy::NamespaceName,
            reason::Reason,
            token::{NamespaceTag, Origin},
        },
        grpc::proto as pb,
    };

    fn token(key: KeyName<'_>) -> Token<'_> {
        Token {
            namespace: NamespaceTag::new(&NamespaceName::new("orders").expect("a name")),
            origin: Origin::Shared,
            nonce: Nonce::from_bytes([255, 2, 3, 4, 5, 6, 7, 8]),
            partition: Partition(u64::MAX),
            key,
        }
    }

    #[track_caller]
    fn check(verdict: &Verdict, token: Option<Token<'_>>, shadow: bool) {
        let mut claim = Vec::new();
        if let Some(token) = &token {
            token.encode(&mut claim);
        }
        let theirs = pb::Verdict {
            claim: claim.into(),
            ..encode::verdict(verdict, shadow)
        };
        let mut ours = Vec::new();
        write_verdict(verdict, token.as_ref(), shadow, &mut ours);
        assert_eq!(ours, theirs.encode_to_vec(), "{theirs:?}");
    }

    #[test]
    fn verdicts_are_the_bytes_that_prost_writes() {
        let id = [b'x'; 512];
        for &reason in Reason::ALL {
            check(&Verdict::of(reason), None, false);
            check(&Verdict::of(reason), None, true);
        }
        for key in [KeyName::Decimal(1), KeyName::Id(&id[..1]), KeyName::Id(&id)] {
            check(&Verdict::of(Reason::FirstSeen), Some(token(key)), false);
        }
        let times = [i64::MIN, -1, 0, 1, 999_999_999, 1_000_000_000, i64::MAX];
        for first in times.map(EventTime::from_unix_nanos) {
            for (copy_of_index, time_clamped) in [(None, true), (Some(0), false), (Some(300), true)]
            {
                let verdict = Verdict {
                    first_occurred_at: Some(first),
                    copy_of_index,
                    time_clamped,
                    degraded: !time_clamped,
                    ..Verdict::of(Reason::Redelivery)
                };
                check(&verdict, None, false);
            }
        }
        for retry_after in [Duration::ZERO, Duration::from_nanos(1), Duration::MAX] {
            for detail in ["", "too old", &"x".repeat(200)] {
                let verdict = Verdict {
                    retry_after: Some(retry_after),
                    detail: Some(detail.to_owned().into()),
                    ..Verdict::of(Reason::InFlight)
                };
                check(&verdict, None, false);
                check(&verdict, None, true);
            }
        }
    }

    #[test]
    fn an_answer_is_the_same_message_alone_and_on_a_stream() {
        for verdicts in [0, 1, 3, 100, 40_000] {
            let message = pb::AdmitResponse {
                verdicts: vec![encode::verdict(&Verdict::of(Reason::FirstSeen), false); verdicts],
                lease: Some(encode::duration(Duration::from_secs(3))),
            };
            let mut buffer = vec![0; HEADROOM];
            message.encode(&mut buffer).expect("room");
            let answer = || AdmitResponse {
                buffer: buffer.clone(),
            };
            assert_eq!(answer().alone().0, message.encode_to_vec());
            for batch_id in [0, 1, u64::MAX] {
                let on_stream = pb::StreamResponse {
                    batch_id,
                    result: Some(pb::stream_response::Result::Admit(message.clone())),
                };
                assert_eq!(answer().on_stream(batch_id).0, on_stream.encode_to_vec());
            }
        }
    }

    #[test]
    fn what_is_longer_than_a_byte_can_say_is_moved_aside() {
        for len in [0, 127, 128, 16_383, 16_384] {
            let mut ours = vec![7];
            nested(3, &mut ours, |out| out.resize(out.len() + len, 9));
            let mut theirs = vec![7];
            prost::encoding::bytes::encode(3, &vec![9; len], &mut theirs);
            assert_eq!(ours, theirs);
        }
    }
}
