//! What the other end says first.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::oneshot;

/// Length, type, flags and stream of an HTTP/2 frame; the first one has type 4, settings.
pub(super) const FRAME_HEAD: usize = 9;

pub(super) enum Greeting {
    Http2,
    Other(&'static str),
    Failed(io::Error),
}

struct Listener {
    first: Vec<u8>,
    heard: oneshot::Sender<Greeting>,
}

/// What the first bytes are, once there are enough.
pub(super) fn judge(first: &[u8]) -> Option<Greeting> {
    match first {
        [b'H', b'T', b'T', b'P', ..] => Some(Greeting::Other("HTTP/1")),
        // A TLS record: alert or handshake, version 3.x.
        [0x15 | 0x16, 3, ..] => Some(Greeting::Other("TLS")),
        [_, _, _, 4, _, 0, 0, 0, 0, ..] => Some(Greeting::Http2),
        _ if first.len() >= FRAME_HEAD => Some(Greeting::Other("no HTTP/2")),
        _ => None,
    }
}

/// A socket that tells what the first bytes from the other end are.
pub(super) struct Greeted<S> {
    socket: S,
    listener: Option<Listener>,
}

impl<S> Greeted<S> {
    /// The socket, and what will be heard on it first.
    pub(super) fn new(socket: S) -> (Self, oneshot::Receiver<Greeting>) {
        let (heard, greeting) = oneshot::channel();
        let listener = Listener { first: Vec::with_capacity(FRAME_HEAD), heard };
        (Self { socket, listener: Some(listener) }, greeting)
    }

    fn tell(&mut self, greeting: Greeting) {
        if let Some(listener) = self.listener.take() {
            // A dial that was given up listens no more.
            let _ = listener.heard.send(greeting);
        }
    }
}

/// What is said of somebody who hung up without a word.
pub(super) fn silence() -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, "it hung up before it said a word")
}

/// The same error once more: the other one goes to whoever reads.
fn copy(error: &io::Error) -> io::Error {
    #[cfg(feature = "tls")]
    if let Some(failed) = crate::etcd::remote::tls::cause(error) {
        return io::Error::new(error.kind(), failed.clone());
    }
    io::Error::new(error.kind(), error.to_string())
}

impl<S: AsyncRead + Unpin> AsyncRead for Greeted<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let read = ready!(Pin::new(&mut self.socket).poll_read(context, buf));
        if let Some(listener) = &mut self.listener {
            let new = buf.filled().get(before..).unwrap_or_default();
            let greeting = match &read {
                Err(error) => Some(Greeting::Failed(copy(error))),
                Ok(()) if new.is_empty() && buf.remaining() > 0 => Some(Greeting::Failed(silence())),
                Ok(()) => {
                    let wanted = FRAME_HEAD.saturating_sub(listener.first.len()).min(new.len());
                    listener.first.extend_from_slice(new.get(..wanted).unwrap_or_default());
                    judge(&listener.first)
                }
            };
            if let Some(greeting) = greeting {
                self.tell(greeting);
            }
        }
        Poll::Ready(read)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Greeted<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.socket).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.socket).poll_write_vectored(context, bytes)
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(context)
    }
}
