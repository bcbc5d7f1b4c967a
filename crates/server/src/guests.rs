//! Connections of which nobody knows yet who is at their other end. There may be few of them, fewer from one address,
//! and who comes last is let in: the oldest goes. So somebody with a token, who shows it at once, always gets through,
//! however many connections others hold open.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

/// Whom connections are counted for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Peer {
    /// An address.
    Address(IpAddr),
    /// A user of this machine, by number.
    User(u32),
}

#[derive(Debug)]
struct Open {
    peer: Peer,
    leave: Arc<Notify>,
}

#[derive(Debug, Default)]
struct Book {
    next: u64,
    /// By number, oldest first.
    open: BTreeMap<u64, Open>,
}

/// All such connections of a listener.
#[derive(Clone, Debug)]
pub struct Guests {
    most: usize,
    most_of_one: usize,
    book: Arc<Mutex<Book>>,
}

/// One of them, as long as it is there.
#[derive(Debug)]
pub struct Guest {
    number: u64,
    leave: Arc<Notify>,
    book: Arc<Mutex<Book>>,
}

fn locked(book: &Mutex<Book>) -> MutexGuard<'_, Book> {
    // It is whole after every statement, whoever panicked.
    book.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Book {
    fn of(&self, peer: Peer) -> usize {
        self.open.values().filter(|one| one.peer == peer).count()
    }

    /// Has the oldest of a peer leave.
    fn turn_out(&mut self, peer: Peer) {
        let oldest = self.open.iter().find(|(_, one)| one.peer == peer).map(|(number, _)| *number);
        if let Some(one) = oldest.and_then(|number| self.open.remove(&number)) {
            one.leave.notify_one();
        }
    }

    /// Who has most of them.
    fn greediest(&self) -> Option<Peer> {
        let mut counts: BTreeMap<Peer, usize> = BTreeMap::new();
        for one in self.open.values() {
            *counts.entry(one.peer).or_default() += 1;
        }
        counts.into_iter().max_by_key(|(_, count)| *count).map(|(peer, _)| peer)
    }
}

impl Guests {
    /// So many in all, and so many of one peer.
    #[must_use]
    pub fn new(most: usize, most_of_one: usize) -> Self {
        let (most, most_of_one) = (most.max(1), most_of_one.max(1));
        Self { most, most_of_one, book: Arc::default() }
    }

    /// Lets one in; if there are too many, another leaves.
    #[must_use]
    pub fn enter(&self, peer: Peer) -> Arc<Guest> {
        let mut book = locked(&self.book);
        if book.of(peer) >= self.most_of_one {
            book.turn_out(peer);
        }
        if book.open.len() >= self.most
            && let Some(greediest) = book.greediest()
        {
            book.turn_out(greediest);
        }
        let (number, leave) = (book.next, Arc::new(Notify::new()));
        book.next += 1;
        book.open.insert(number, Open { peer, leave: Arc::clone(&leave) });
        Arc::new(Guest { number, leave, book: Arc::clone(&self.book) })
    }

    /// Has one leave, as there is no place for anybody; none does if all are known.
    pub fn make_room(&self) {
        let mut book = locked(&self.book);
        if let Some(greediest) = book.greediest() {
            book.turn_out(greediest);
        }
    }
}

impl Guest {
    /// It is known who is at its other end: it is no guest any more.
    pub fn is_known(&self) {
        locked(&self.book).open.remove(&self.number);
    }

    /// Until it has to leave.
    pub async fn turned_out(&self) {
        self.leave.notified().await;
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        locked(&self.book).open.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn has_to_leave(guest: &Guest) -> bool {
        use futures_util::FutureExt as _;
        guest.turned_out().now_or_never().is_some()
    }

    #[test]
    fn the_oldest_of_who_has_most_leaves_for_whoever_comes() {
        let guests = Guests::new(4, 3);
        let (greedy, modest) = (Peer::User(1), Peer::User(2));
        let first = guests.enter(greedy);
        let more: Vec<_> = (0..2).map(|_| guests.enter(greedy)).collect();
        assert!(!has_to_leave(&first));
        let fourth = guests.enter(greedy);
        assert!(has_to_leave(&first), "one too many of its own");
        let known = guests.enter(modest);
        known.is_known();
        let other = guests.enter(modest);
        assert!(!has_to_leave(&more[0]));
        let another = guests.enter(modest);
        assert!(has_to_leave(&more[0]), "one too many in all");
        drop(more);
        for one in [&fourth, &other, &another, &known] {
            assert!(!has_to_leave(one));
        }
        guests.make_room();
        assert!(has_to_leave(&other), "of the two that are the modest one's, the older");
        assert!(!has_to_leave(&known), "who is known stays");
    }
}
