//! How much one client may take of the server: the numbers, and who has used how much of them.

use std::collections::HashMap;
use std::hash::Hash;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// So many requests a second for long, and so many at once after a pause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// Requests a second that are given back.
    pub per_second: u32,
    /// Requests that may come at once.
    pub burst: u32,
}

/// The limits of the API. Each is far above what people and their scripts need, and low enough that one client
/// cannot take the daemon from the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// How large the body of a request may be, in bytes: a workload with its environment, or a tree of thousands
    /// of budgets.
    pub body_bytes: usize,
    /// How long a request may take, in all, its body included. A change waits for the disk at most seconds.
    pub request_time: Duration,
    /// How long the head of a request may take to arrive: who dribbles it gets no further (slow loris).
    pub header_time: Duration,
    /// How long a connection may take nothing of what it is sent, before it is closed.
    pub write_time: Duration,
    /// How many headers a request may have.
    pub headers: usize,
    /// How large the head of a request may be, in bytes.
    pub header_bytes: usize,
    /// How many connections there may be. More wait to be accepted.
    pub connections: usize,
    /// How many of them may be of nobody known: none of their requests had a good token yet. If more come, the oldest
    /// of whoever has most is closed.
    pub guests: usize,
    /// How many of these may come from one address, or to the socket for reports from one user.
    pub guests_of_one: usize,
    /// How many requests are worked on at once: each may hold a body. More are told to come again.
    pub requests_at_once: usize,
    /// How many streams of events there may be; each holds a connection for as long as it lasts.
    pub streams: usize,
    /// How many of them one user may have.
    pub streams_of_one: usize,
    /// How many dry runs of one user may wait for an answer: each is planned on a copy of the whole site.
    pub dry_runs_of_one: usize,
    /// What one token may ask for: a script that submits thousands is slowed, not refused.
    pub token: Rate,
    /// What one peer may ask for without a token that is known to be good: enough to mistype one, too little to
    /// guess.
    pub peer: Rate,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            body_bytes: 4 * 1024 * 1024,
            request_time: Duration::from_secs(30),
            header_time: Duration::from_secs(10),
            write_time: Duration::from_secs(60),
            headers: 64,
            header_bytes: 32 * 1024,
            connections: 512,
            guests: 256,
            guests_of_one: 64,
            requests_at_once: 256,
            streams: 128,
            streams_of_one: 16,
            dry_runs_of_one: 2,
            token: Rate { per_second: 500, burst: 2_000 },
            peer: Rate { per_second: 2, burst: 60 },
        }
    }
}

/// How deep JSON or YAML may nest: budgets lie at most 16 deep, each takes two levels, and a few are around them.
/// What reads them is recursive.
pub const NESTING_MAX: usize = 48;

/// How many clients are remembered; beyond that those with nothing to remember, then the oldest are forgotten.
const CLIENTS_MAX: usize = 10_000;

/// What is left to a client, in thousandths of a request.
#[derive(Clone, Copy, Debug)]
struct Bucket {
    left_milli: u64,
    at_ms: u64,
}

struct Buckets<K> {
    rate: Rate,
    known: HashMap<K, Bucket>,
}

impl<K: Eq + Hash + Copy> Buckets<K> {
    fn new(rate: Rate) -> Self {
        Self { rate, known: HashMap::new() }
    }

    fn full(&self) -> u64 {
        u64::from(self.rate.burst) * 1_000
    }

    fn filled(&self, bucket: Bucket, now_ms: u64) -> u64 {
        // Requests a second are thousandths a millisecond.
        let back = now_ms.saturating_sub(bucket.at_ms).saturating_mul(self.rate.per_second.into());
        bucket.left_milli.saturating_add(back).min(self.full())
    }

    /// Takes one request, or says after how long there is one.
    fn take(&mut self, key: K, now_ms: u64) -> Result<(), Duration> {
        let left = self.known.get(&key).map_or(self.full(), |bucket| self.filled(*bucket, now_ms));
        if left < 1_000 {
            let wait_ms = (1_000 - left).div_ceil(u64::from(self.rate.per_second.max(1)));
            return Err(Duration::from_millis(wait_ms));
        }
        self.make_room(&key, now_ms);
        self.known.insert(key, Bucket { left_milli: left - 1_000, at_ms: now_ms });
        Ok(())
    }

    fn give_back(&mut self, key: &K) {
        let full = self.full();
        if let Some(bucket) = self.known.get_mut(key) {
            bucket.left_milli = (bucket.left_milli + 1_000).min(full);
        }
    }

    fn make_room(&mut self, key: &K, now_ms: u64) {
        if self.known.len() < CLIENTS_MAX || self.known.contains_key(key) {
            return;
        }
        let full = self.full();
        let mut known = std::mem::take(&mut self.known);
        known.retain(|_, bucket| self.filled(*bucket, now_ms) < full);
        if known.len() >= CLIENTS_MAX
            && let Some(oldest) = known.values().map(|bucket| bucket.at_ms).min()
        {
            known.retain(|_, bucket| bucket.at_ms > oldest);
        }
        self.known = known;
    }
}

/// The SHA-256 of a secret, which stands for it.
pub type SecretHash = [u8; 32];

/// Who has asked for how much lately. Its clock is an argument, so that tests need not wait.
pub struct Limiter {
    now_ms: Box<dyn Fn() -> u64 + Send + Sync>,
    tokens: Mutex<Buckets<SecretHash>>,
    peers: Mutex<Buckets<IpAddr>>,
}

impl std::fmt::Debug for Limiter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Limiter")
    }
}

/// A peer as it is counted: one IPv4 address, or one network of IPv6, of which a single client has all addresses.
pub(crate) fn counted(peer: IpAddr) -> IpAddr {
    match peer {
        IpAddr::V4(_) => peer,
        IpAddr::V6(address) => match address.to_ipv4_mapped() {
            Some(address) => address.into(),
            None => {
                let [a, b, c, d, ..] = address.segments();
                std::net::Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0).into()
            }
        },
    }
}

fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    // Counts are whole after every statement, whoever panicked.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Limiter {
    /// A limiter by a clock that counts milliseconds from any moment and never goes back.
    pub fn new(limits: &Limits, now_ms: impl Fn() -> u64 + Send + Sync + 'static) -> Self {
        Self {
            now_ms: Box::new(now_ms),
            tokens: Mutex::new(Buckets::new(limits.token)),
            peers: Mutex::new(Buckets::new(limits.peer)),
        }
    }

    /// A limiter by this process's clock.
    #[must_use]
    pub fn by_process_clock(limits: &Limits) -> Self {
        let begun = std::time::Instant::now();
        Self::new(limits, move || u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX))
    }

    /// Whether this token was good when it was last used here.
    pub fn knows(&self, token: &SecretHash) -> bool {
        locked(&self.tokens).known.contains_key(token)
    }

    /// Takes one request of a token.
    ///
    /// # Errors
    /// After how long there is one.
    pub fn take_of_token(&self, token: &SecretHash) -> Result<(), Duration> {
        locked(&self.tokens).take(*token, (self.now_ms)())
    }

    /// A token is void: whoever sends it is a stranger from now on.
    pub fn forget(&self, token: &SecretHash) {
        locked(&self.tokens).known.remove(token);
    }

    /// Takes one request of a peer that nobody knows.
    ///
    /// # Errors
    /// After how long there is one.
    pub fn take_of_peer(&self, peer: IpAddr) -> Result<(), Duration> {
        locked(&self.peers).take(counted(peer), (self.now_ms)())
    }

    /// The peer turned out to have a good token.
    pub fn give_back(&self, peer: IpAddr) {
        locked(&self.peers).give_back(&counted(peer));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    fn limiter(token: Rate, peer: Rate) -> (Limiter, Arc<AtomicU64>) {
        let clock = Arc::new(AtomicU64::new(0));
        let limits = Limits { token, peer, ..Limits::default() };
        let read = Arc::clone(&clock);
        (Limiter::new(&limits, move || read.load(Ordering::Relaxed)), clock)
    }

    const SLOW: Rate = Rate { per_second: 2, burst: 3 };

    #[test]
    fn a_burst_is_given_then_the_rate() {
        let (limiter, clock) = limiter(SLOW, SLOW);
        let token = [7; 32];
        for _ in 0..3 {
            limiter.take_of_token(&token).expect("within the burst");
        }
        let wait = limiter.take_of_token(&token).expect_err("it is used up");
        assert_eq!(wait, Duration::from_millis(500));
        clock.store(499, Ordering::Relaxed);
        assert_eq!(limiter.take_of_token(&token), Err(Duration::from_millis(1)));
        clock.store(500, Ordering::Relaxed);
        limiter.take_of_token(&token).expect("one is back");
        limiter.take_of_token(&token).expect_err("and only one");
        // Another token has its own.
        limiter.take_of_token(&[8; 32]).expect("untouched");
        // However long the pause, the burst is all there is.
        clock.store(u64::MAX, Ordering::Relaxed);
        let given = (0..10).filter(|_| limiter.take_of_token(&token).is_ok()).count();
        assert_eq!(given, 3);
    }

    #[test]
    fn peers_of_one_ipv6_network_are_one() {
        let (limiter, _) = limiter(SLOW, Rate { per_second: 1, burst: 1 });
        let peer = |text: &str| text.parse::<IpAddr>().expect("an address");
        limiter.take_of_peer(peer("2001:db8::1")).expect("the first");
        limiter.take_of_peer(peer("2001:db8::2")).expect_err("the same network");
        limiter.take_of_peer(peer("2001:db8:0:1::1")).expect("another network");
        limiter.take_of_peer(peer("::ffff:192.0.2.1")).expect("an IPv4 address");
        limiter.take_of_peer(peer("192.0.2.1")).expect_err("the same address");
        limiter.take_of_peer(peer("192.0.2.2")).expect("another address");
        limiter.give_back(peer("192.0.2.2"));
        limiter.take_of_peer(peer("192.0.2.2")).expect("given back");
    }

    #[test]
    fn memory_is_bounded() {
        let (limiter, clock) = limiter(SLOW, SLOW);
        for at in 0..30_000u64 {
            clock.store(at / 100, Ordering::Relaxed);
            let mut token = [0; 32];
            token[..8].copy_from_slice(&at.to_le_bytes());
            limiter.take_of_token(&token).expect("a new one");
            assert!(locked(&limiter.tokens).known.len() <= CLIENTS_MAX);
        }
    }

    #[test]
    fn a_forgotten_token_is_a_stranger() {
        let (limiter, _) = limiter(SLOW, SLOW);
        limiter.take_of_token(&[1; 32]).expect("one");
        assert!(limiter.knows(&[1; 32]));
        limiter.forget(&[1; 32]);
        assert!(!limiter.knows(&[1; 32]));
    }
}
