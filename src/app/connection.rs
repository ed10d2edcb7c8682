//! A connection whose answers leave together.

use std::{
    io::{self, IoSlice},
    pin::Pin,
    task::{Context, Poll, ready},
};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tonic::transport::server::Connected;

use crate::grpc::calls::OpenCalls;

/// Lets other calls of the connection finish before it writes, if there are any: once, and until
/// those have run that are ready to, so that no timer is involved. A pipeline of claims is answered as
/// one, and the calls behind it would else be answered by a system call each.
#[derive(Debug)]
pub(super) struct Connection<S> {
    stream: S,
    open: OpenCalls,
    has_waited: bool,
}

impl<S> Connection<S> {
    pub(super) fn new(stream: S) -> Self {
        Self {
            stream,
            open: OpenCalls::default(),
            has_waited: false,
        }
    }

    /// A task that wakes itself comes behind all that are ready.
    fn poll_turn(&mut self, context: &Context<'_>) -> Poll<()> {
        if self.has_waited || !self.open.are_any() {
            return Poll::Ready(());
        }
        self.has_waited = true;
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
        ready!(self.poll_turn(context));
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_turn(context));
        Pin::new(&mut self.stream).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(Pin::new(&mut self.stream).poll_flush(context))?;
        self.has_waited = false;
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
