//! A codec that hands messages over as bytes.

use bytes::{Buf, BufMut, Bytes};
use prost::Message;
use tonic::{
    Status,
    codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder},
};

/// A message as it came; nothing of it was read.
#[derive(Clone, Debug)]
pub(crate) struct Received(pub(in crate::grpc) Bytes);

/// A message as it goes out.
#[derive(Clone, Debug)]
pub(crate) struct Encoded(pub(in crate::grpc) Bytes);

impl<M: Message> From<M> for Encoded {
    fn from(message: M) -> Self {
        Self(message.encode_to_vec().into())
    }
}

/// For tonic's generated server.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Unread(());

impl Codec for Unread {
    type Encode = Encoded;
    type Decode = Received;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        *self
    }

    fn decoder(&mut self) -> Self {
        *self
    }
}

impl Decoder for Unread {
    type Item = Received;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<Received>, Status> {
        let bytes = buffer.remaining();
        Ok(Some(Received(buffer.copy_to_bytes(bytes))))
    }
}

impl Encoder for Unread {
    type Item = Encoded;
    type Error = Status;

    fn encode(&mut self, message: Encoded, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        buffer.put(message.0);
        Ok(())
    }
}
