//! Why somebody hung up, when the reason was lost with the connection.
//!
//! A server that looks at a client's certificate refuses it only after the client took the connection for made and has
//! begun to speak. Then the server's reason and the client's first words pass each other, and whoever writes to somebody
//! who has hung up may never come to read. And Go's TLS hangs up without a word on whoever does not begin with TLS. So a
//! connection that was cut before a greeting is made once more, to listen or to ask for TLS.

use std::io;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;

use super::greeting::{FRAME_HEAD, Greeting, judge};
use super::{Dialler, connect, speaks};
use crate::etcd::remote::{Endpoint, WireError};
use crate::runtime::{Instant, Runtime, before};

/// Who has said nothing until then has no complaint.
const PATIENCE: Duration = Duration::from_secs(1);

/// The head of a TLS handshake with an empty hello in it (RFC 8446, sections 4 and 5.1). Whoever speaks TLS answers with
/// an alert, which is a TLS record; nobody else does.
const EMPTY_HELLO: &[u8] = &[0x16, 3, 1, 0, 4, 1, 0, 0, 0];

impl Dialler {
    /// The reason, if this time it is heard.
    pub(super) async fn second_look(
        &self,
        endpoint: &Endpoint,
        (host, port): (&str, u16),
        runtime: &dyn Runtime,
        deadline: Instant,
    ) -> Option<WireError> {
        let until = deadline.min(runtime.now() + PATIENCE);
        let look = async {
            let socket = connect(host, port, runtime, until).await.ok()?;
            #[cfg(feature = "tls")]
            if let Some(tls) = self.tls_for(endpoint) {
                return listen_securely(tls, endpoint, host, socket).await;
            }
            listen(endpoint, socket).await
        };
        before(runtime, until, look).await.flatten()
    }
}

async fn listen(endpoint: &Endpoint, mut socket: TcpStream) -> Option<WireError> {
    socket.write_all(EMPTY_HELLO).await.ok()?;
    match first_words(&mut socket).await.ok()? {
        Greeting::Other(what) => Some(speaks(endpoint, what)),
        _ => None,
    }
}

/// A server looks at our certificate, or finds that there is none, after the handshake has ended for us (TLS 1.3).
#[cfg(feature = "tls")]
async fn listen_securely(
    tls: &crate::etcd::remote::tls::Tls,
    endpoint: &Endpoint,
    host: &str,
    socket: TcpStream,
) -> Option<WireError> {
    use crate::etcd::remote::tls::{Tls, cause};

    match tls.secure(endpoint, host, socket).await {
        Err(refused @ (WireError::Untrusted { .. } | WireError::NotEtcd { .. })) => Some(refused),
        Err(_) => None,
        Ok(mut socket) => {
            let error = first_words(&mut socket).await.err()?;
            cause(&error).map(|_| Tls::failure(endpoint, &error))
        }
    }
}

async fn first_words<S: AsyncRead + AsyncWrite + Unpin>(socket: &mut S) -> io::Result<Greeting> {
    let mut words = Vec::with_capacity(FRAME_HEAD);
    loop {
        if socket.read_buf(&mut words).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if let Some(greeting) = judge(&words) {
            return Ok(greeting);
        }
    }
}
