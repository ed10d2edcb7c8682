//! Protobuf as the hot path reads and writes it: events borrowed from the bytes of their request
//! and answers written once, with nothing between bytes and the domain's values. For all other
//! messages there are generated types.

mod answer;
mod codec;
mod reader;
mod request;

pub(super) use self::{
    answer::AdmitResponse,
    request::{AdmitRequest, Operation, StreamRequest, event},
};
pub(crate) use self::{
    codec::{Encoded, Received, Unread},
    reader::Malformed,
};

#[cfg(test)]
mod tests;
