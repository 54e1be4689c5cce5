//! The open connections of the northbound address, and which of them gives way to a new one.
//!
//! Pure: time is an argument. The decision: a connection that waits for a request has no claim to
//! its place. When an address, or all together, have no room, the connection that has waited
//! longest is closed for the new one, so that half-sent requests keep nobody out; only connections
//! with a request in progress are kept.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use tokio::time::Instant;

/// The number of a connection.
pub(super) type ConnectionId = u64;

/// Open connections, within two bounds.
#[derive(Clone, Debug)]
pub(super) struct ConnectionTable {
    most: usize,
    most_per_address: usize,
    next: ConnectionId,
    open: BTreeMap<ConnectionId, OpenConnection>,
    /// Connections without a request in progress, by address and since when.
    waiting: BTreeSet<(IpAddr, Instant, ConnectionId)>,
    /// Those of all addresses, by since when.
    waiting_longest: BTreeSet<(Instant, ConnectionId)>,
    per_address: BTreeMap<IpAddr, usize>,
}

/// One of them.
#[derive(Clone, Copy, Debug)]
struct OpenConnection {
    address: IpAddr,
    requests: usize,
    /// Since when it is without a request.
    waiting_since: Instant,
}

/// What becomes of a new connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ConnectionAdmission {
    /// It is open; the other one, if any, is to be closed.
    Admitted { id: ConnectionId, evicted: Option<ConnectionId> },
    /// All others have requests in progress.
    Refused,
}

impl ConnectionTable {
    pub(super) fn new(most: usize, most_per_address: usize) -> Self {
        Self {
            most,
            most_per_address,
            next: 0,
            open: BTreeMap::new(),
            waiting: BTreeSet::new(),
            waiting_longest: BTreeSet::new(),
            per_address: BTreeMap::new(),
        }
    }

    /// Makes room for a connection of `address`, if there is any.
    pub(super) fn open_connection(&mut self, address: IpAddr, now: Instant) -> ConnectionAdmission {
        let own = self.per_address.get(&address).copied().unwrap_or_default();
        let victim = if own >= self.most_per_address {
            let own = (address, self.earliest(), 0)..;
            let first = self.waiting.range(own).next().filter(|(of, ..)| *of == address);
            Some(first.map(|(.., id)| *id))
        } else if self.open.len() >= self.most {
            Some(self.waiting_longest.first().map(|(_, id)| *id))
        } else {
            None
        };
        let evicted = match victim {
            Some(None) => return ConnectionAdmission::Refused,
            Some(Some(id)) => Some(id),
            None => None,
        };
        if let Some(id) = evicted {
            self.close_connection(id);
        }
        let id = self.next;
        self.next += 1;
        self.open.insert(id, OpenConnection { address, requests: 0, waiting_since: now });
        *self.per_address.entry(address).or_default() += 1;
        self.waiting.insert((address, now, id));
        self.waiting_longest.insert((now, id));
        ConnectionAdmission::Admitted { id, evicted }
    }

    /// Forgets a connection; one that was evicted is unknown already.
    pub(super) fn close_connection(&mut self, id: ConnectionId) {
        let Some(connection) = self.open.remove(&id) else {
            return;
        };
        self.forget_wait(id, connection);
        if let Some(own) = self.per_address.get_mut(&connection.address) {
            *own -= 1;
            if *own == 0 {
                self.per_address.remove(&connection.address);
            }
        }
    }

    /// A request of a connection is in progress from now on.
    pub(super) fn begin_request(&mut self, id: ConnectionId) {
        let Some(connection) = self.open.get_mut(&id) else {
            return;
        };
        connection.requests += 1;
        let connection = *connection;
        self.forget_wait(id, connection);
    }

    /// A request has its response; without another one the connection waits from now on.
    pub(super) fn end_request(&mut self, id: ConnectionId, now: Instant) {
        let Some(connection) = self.open.get_mut(&id) else {
            return;
        };
        connection.requests = connection.requests.saturating_sub(1);
        if connection.requests > 0 {
            return;
        }
        connection.waiting_since = now;
        self.waiting.insert((connection.address, now, id));
        self.waiting_longest.insert((now, id));
    }

    /// Since when a connection waits for a request; `None` while it has one, or is closed.
    pub(super) fn waiting_since(&self, id: ConnectionId) -> Option<Instant> {
        let connection = self.open.get(&id)?;
        (connection.requests == 0).then_some(connection.waiting_since)
    }

    fn forget_wait(&mut self, id: ConnectionId, connection: OpenConnection) {
        let OpenConnection { address, waiting_since, .. } = connection;
        self.waiting.remove(&(address, waiting_since, id));
        self.waiting_longest.remove(&(waiting_since, id));
    }

    /// No connection waits since earlier.
    fn earliest(&self) -> Instant {
        let first = self.waiting_longest.first();
        first.map_or_else(Instant::now, |(since, _)| *since)
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::time::Duration;

    use super::*;

    fn address(last: u8) -> IpAddr {
        Ipv4Addr::new(10, 0, 0, last).into()
    }

    #[test]
    fn the_longest_waiting_connection_gives_way() {
        let now = Instant::now();
        let later = |seconds| now + Duration::from_secs(seconds);
        let mut table = ConnectionTable::new(4, 2);
        let admitted = |id, evicted| ConnectionAdmission::Admitted { id, evicted };
        assert_eq!(table.open_connection(address(1), now), admitted(0, None));
        assert_eq!(table.open_connection(address(1), later(1)), admitted(1, None));
        assert_eq!(table.open_connection(address(1), later(2)), admitted(2, Some(0)), "its own");
        table.begin_request(1);
        table.begin_request(2);
        let refused = table.open_connection(address(1), later(3));
        assert_eq!(refused, ConnectionAdmission::Refused, "both have requests");
        assert_eq!(table.open_connection(address(2), later(4)), admitted(3, None));
        assert_eq!(table.open_connection(address(3), later(5)), admitted(4, None));
        assert_eq!(table.open_connection(address(4), later(6)), admitted(5, Some(3)), "of all");
        table.end_request(1, later(7));
        assert_eq!(table.waiting_since(1), Some(later(7)));
        assert_eq!(table.open_connection(address(1), later(8)), admitted(6, Some(1)));
    }

    #[test]
    fn closed_connections_leave_nothing_behind() {
        let mut table = ConnectionTable::new(8, 8);
        let now = Instant::now();
        for last in 0..200 {
            table.open_connection(address(last), now);
            table.begin_request(u64::from(last));
        }
        for id in 0..200 {
            table.end_request(id, now);
            table.close_connection(id);
        }
        let left = (table.open.len(), table.waiting.len(), table.waiting_longest.len());
        assert_eq!((left, table.per_address.len()), ((0, 0, 0), 0));
    }
}
