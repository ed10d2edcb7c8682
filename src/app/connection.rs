//! A connection whose answers leave together.

use std::{
    io::{self, IoSlice},
    mem,
    pin::Pin,
    task::{Context, Poll, ready},
};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tonic::transport::server::Connected;

use crate::grpc::calls::OpenCalls;

/// Lets other calls of the connection finish before it writes a small answer, if there are any: once,
/// and until those have run that this thread has ready, so that no timer is involved. A pipeline of
/// claims is answered as one, and the calls behind it would else be answered by a system call each.
#[derive(Debug)]
pub(super) struct Connection<S> {
    stream: S,
    open: OpenCalls,
    waits: bool,
    had_turn: bool,
}

impl<S> Connection<S> {
    /// Over TLS waiting is in vain: what was encrypted before is not added to.
    pub(super) fn new(stream: S, is_tls: bool) -> Self {
        Self {
            stream,
            open: OpenCalls::default(),
            waits: !is_tls,
            had_turn: false,
        }
    }

    /// A task that wakes itself comes behind all that its thread has ready. `takes_more`: what comes
    /// meanwhile may be added to the write.
    fn poll_turn(&mut self, context: &Context<'_>, takes_more: bool) -> Poll<()> {
        let had_turn = mem::replace(&mut self.had_turn, true);
        if !self.waits || had_turn || !takes_more || !self.open.are_any() {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    }
}

impl<S: Connected> Connected for Connection<S> {
    type ConnectInfo = OpenCalls;

    fn connect_info(&self) -> OpenCalls {
        self.open.clone()
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Connection<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Connection<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_turn(context, true));
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        // Small frames gather in one buffer; a large one goes with its head, and then is flushed.
        ready!(self.poll_turn(context, slices.len() == 1));
        Pin::new(&mut self.stream).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(Pin::new(&mut self.stream).poll_flush(context))?;
        self.had_turn = false;
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use tokio::io::{AsyncReadExt, DuplexStream, duplex};

    use super::*;

    fn connection(is_tls: bool) -> (Connection<DuplexStream>, DuplexStream) {
        let (ours, theirs) = duplex(64);
        (Connection::new(ours, is_tls), theirs)
    }

    fn write(connection: &mut Connection<DuplexStream>) -> bool {
        let mut context = Context::from_waker(Waker::noop());
        let written = Pin::new(connection).poll_write(&mut context, b"answer");
        written.is_ready()
    }

    fn flush(connection: &mut Connection<DuplexStream>) {
        let mut context = Context::from_waker(Waker::noop());
        let flushed = Pin::new(connection).poll_flush(&mut context);
        assert!(flushed.is_ready());
    }

    #[tokio::test]
    async fn an_answer_waits_one_turn_for_the_calls_that_are_open() {
        let (mut connection, mut peer) = connection(false);
        assert!(write(&mut connection), "nobody else is there");
        flush(&mut connection);
        let call = connection.open.enter();
        for _ in 0..2 {
            assert!(!write(&mut connection), "the others come first");
            assert!(write(&mut connection), "once");
            assert!(write(&mut connection), "and all that belongs to it");
            flush(&mut connection);
        }
        drop(call);
        assert!(write(&mut connection));
        flush(&mut connection);
        let mut read = [0; 6 * 6];
        peer.read_exact(&mut read).await.expect("all of it");
        assert_eq!(read, *b"answer".repeat(6));
    }

    #[tokio::test]
    async fn a_large_answer_does_not_wait() {
        let (mut connection, _peer) = connection(false);
        let _call = connection.open.enter();
        let slices = [IoSlice::new(b"head"), IoSlice::new(b"payload")];
        let mut context = Context::from_waker(Waker::noop());
        let written = Pin::new(&mut connection).poll_write_vectored(&mut context, &slices);
        assert!(written.is_ready());
        assert!(write(&mut connection), "nor does its end");
    }

    #[tokio::test]
    async fn over_tls_it_does_not_wait() {
        let (mut connection, _peer) = connection(true);
        let _call = connection.open.enter();
        assert!(write(&mut connection));
    }
}
