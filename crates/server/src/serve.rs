//! Connections: how many there may be, and how long each may keep the server waiting.

use crate::guests::{Guests, Peer};
use crate::limits::Limits;
use axum::Router;
use axum::extract::ConnectInfo;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::time::Sleep;
use tower::ServiceExt as _;

/// How long connections have to end when the server does.
const END_TIME: Duration = Duration::from_secs(5);
/// How long to wait after a connection could not be accepted: mostly there are too many open files.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Where connections come in.
pub(crate) trait Door {
    /// What is read from and written to.
    type Stream: AsyncRead + AsyncWrite + Unpin + Send + 'static;

    /// The next one, with whom it is counted for and its address, if it has one.
    fn next(
        &self,
    ) -> impl Future<Output = io::Result<(Self::Stream, Peer, Option<SocketAddr>)>> + Send;
}

impl Door for TcpListener {
    type Stream = tokio::net::TcpStream;

    async fn next(&self) -> io::Result<(Self::Stream, Peer, Option<SocketAddr>)> {
        let (stream, address) = self.accept().await?;
        // Answers are small and waited for.
        let _ = stream.set_nodelay(true);
        Ok((stream, Peer::Address(crate::limits::counted(address.ip())), Some(address)))
    }
}

impl Door for tokio::net::UnixListener {
    type Stream = tokio::net::UnixStream;

    async fn next(&self) -> io::Result<(Self::Stream, Peer, Option<SocketAddr>)> {
        let (stream, _) = self.accept().await?;
        let peer = Peer::User(stream.peer_cred()?.uid());
        Ok((stream, peer, None))
    }
}

/// Serves until `stop` is done, then lets what is under way come to its end.
pub async fn serve(
    listener: TcpListener,
    router: Router,
    limits: &Limits,
    stop: impl Future<Output = ()>,
) {
    serve_at(listener, router, limits, stop).await;
}

/// As [`serve`], wherever connections come from.
pub(crate) async fn serve_at(
    door: impl Door,
    router: Router,
    limits: &Limits,
    stop: impl Future<Output = ()>,
) {
    let mut http = hyper::server::conn::http1::Builder::new();
    http.timer(TokioTimer::new())
        .header_read_timeout(limits.header_time)
        .max_headers(limits.headers)
        .max_buf_size(limits.header_bytes);
    let places = Arc::new(Semaphore::new(limits.connections));
    let guests = Guests::new(limits.guests, limits.guests_of_one);
    let graceful = GracefulShutdown::new();
    let mut stop = std::pin::pin!(stop);
    loop {
        let accepted = tokio::select! {
            () = &mut stop => break,
            accepted = door.next() => accepted,
        };
        let (stream, peer, address) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        if places.available_permits() == 0 {
            guests.make_room();
        }
        let place = tokio::select! {
            () = &mut stop => break,
            place = Arc::clone(&places).acquire_owned() => place,
        };
        let guest = guests.enter(peer);
        let (router, shown) = (router.clone(), Arc::clone(&guest));
        let service = hyper::service::service_fn(move |request: hyper::Request<_>| {
            let mut request = request.map(axum::body::Body::new);
            if let Some(address) = address {
                request.extensions_mut().insert(ConnectInfo::<SocketAddr>(address));
            }
            request.extensions_mut().insert(Arc::clone(&shown));
            router.clone().oneshot(request)
        });
        let io = TokioIo::new(Patient::new(stream, limits.write_time));
        let connection = graceful.watch(http.serve_connection(io, service));
        tokio::spawn(async move {
            // What went wrong is the client's to see: it hung up, was too slow, or had to leave for others.
            tokio::select! {
                _ = connection => {}
                () = guest.turned_out() => {}
            }
            drop(place);
        });
    }
    drop(door);
    if tokio::time::timeout(END_TIME, graceful.shutdown()).await.is_err() {
        tracing::info!("some connections did not end in time");
    }
}

/// A connection that is given up if nothing of what it is sent is taken for too long.
struct Patient<S> {
    stream: S,
    patience: Duration,
    since: Option<Pin<Box<Sleep>>>,
}

impl<S> Patient<S> {
    const fn new(stream: S, patience: Duration) -> Self {
        Self { stream, patience, since: None }
    }

    fn unless_too_long<T>(
        &mut self,
        context: &mut Context<'_>,
        polled: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if polled.is_ready() {
            self.since = None;
            return polled;
        }
        let patience = self.patience;
        let sleep = self.since.get_or_insert_with(|| Box::pin(tokio::time::sleep(patience)));
        if sleep.as_mut().poll(context).is_ready() {
            self.since = None;
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        Poll::Pending
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Patient<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Patient<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.unless_too_long(context, polled)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write_vectored(context, parts);
        self.unless_too_long(context, polled)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.stream).poll_flush(context);
        self.unless_too_long(context, polled)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    #[tokio::test]
    async fn a_client_that_does_not_read_is_given_up() {
        let (server, mut client) = tokio::io::duplex(64);
        let mut server = Patient::new(server, Duration::from_millis(20));
        server.write_all(&[1; 64]).await.expect("there is room");
        let error = server.write_all(&[2; 64]).await.expect_err("nobody reads");
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        // One who reads in time is not, however often there is no room.
        let mut part = [0; 64];
        client.read_exact(&mut part).await.expect("what was sent");
        let reading = async {
            let mut all = vec![0; 64 * 50];
            client.read_exact(&mut all).await.expect("all of it");
            all
        };
        let (sent, read) = tokio::join!(server.write_all(&[3; 64 * 50]), reading);
        sent.expect("it is read");
        assert_eq!(read, [3; 64 * 50]);
    }
}
