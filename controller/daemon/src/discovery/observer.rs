//! What was heard of a fabric and is not stale.
//!
//! Sans-IO: frames and the time are arguments, [`Sight`] is the result. The decision: of each port,
//! only the latest round counts, so a probe that somebody recorded and sends again is old news.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::time::Duration;

use tokio::time::Instant;
use topology::SwitchId;

use super::probe::{Key, Probe};
use super::{End, Sight, Station, arp};

/// One who sends probes and listens for them.
#[derive(Clone, Debug)]
pub struct Observer {
    key: Key,
    stale: Duration,
    round: u64,
    heard: BTreeMap<End, Heard>,
    stations: BTreeMap<Ipv4Addr, Station>,
}

/// The latest probe from a port.
#[derive(Clone, Copy, Debug)]
struct Heard {
    to: End,
    round: u64,
    at: Instant,
}

impl Observer {
    /// One to whom what was not heard for `stale` is not there.
    pub fn new(key: Key, stale: Duration) -> Self {
        Self {
            key,
            stale,
            round: 0,
            heard: BTreeMap::new(),
            stations: BTreeMap::new(),
        }
    }

    /// Begins another round of probes; its number.
    pub fn begin_round(&mut self) -> u64 {
        self.round += 1;
        self.round
    }

    /// The probe of this round that leaves by a port.
    pub fn probe(&self, from: End) -> Vec<u8> {
        let round = self.round;
        Probe { from, round }.encode(&self.key)
    }

    /// Takes in a frame that arrived at a port. Frames that are no proof of anything are left.
    pub fn hear(&mut self, at: End, frame: &[u8], now: Instant) {
        if let Some((ip, mac)) = arp::sender(frame) {
            self.stations.insert(ip, Station { at, mac });
        }
        let Some(probe) = Probe::decode(frame, &self.key) else {
            return;
        };
        let known = self.heard.get(&probe.from).map_or(0, |heard| heard.round);
        if probe.round > known && probe.round <= self.round {
            let heard = Heard {
                to: at,
                round: probe.round,
                at: now,
            };
            self.heard.insert(probe.from, heard);
        }
    }

    /// Ports of a switch at which a cable was ever seen.
    pub fn ports(&self, switch: SwitchId) -> impl Iterator<Item = u16> + '_ {
        let ends = self.heard.iter();
        let ends = ends.flat_map(|(from, heard)| [*from, heard.to]);
        let here = ends.filter(move |end| end.switch == switch);
        here.map(|end| end.port)
    }

    /// What is seen at `now`.
    pub fn sight(&self, now: Instant) -> Sight {
        let fresh = self.heard.iter();
        let fresh = fresh.filter(|(_, heard)| now.duration_since(heard.at) < self.stale);
        let links: BTreeMap<End, End> = fresh.map(|(from, heard)| (*from, heard.to)).collect();
        let is_host = |station: &Station| !links.contains_key(&station.at);
        let stations = self.stations.iter();
        let stations = stations.filter(|(_, station)| is_host(station));
        Sight {
            stations: stations.map(|(ip, station)| (*ip, *station)).collect(),
            links,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const STALE: Duration = Duration::from_millis(600);

    fn end(switch: u32, port: u16) -> End {
        let switch = SwitchId(switch);
        End { switch, port }
    }

    fn observer() -> Observer {
        Observer::new(Key::new([1; 32]), STALE)
    }

    #[test]
    fn a_probe_is_seen_until_it_is_stale_and_said_again_it_is_old_news() {
        let (mut observer, now) = (observer(), Instant::now());
        observer.begin_round();
        let frame = observer.probe(end(0, 4));
        observer.hear(end(2, 1), &frame, now);
        assert_eq!(observer.sight(now).links, [(end(0, 4), end(2, 1))].into());
        // A recording, at another port.
        observer.hear(end(3, 9), &frame, now);
        assert_eq!(observer.sight(now).links, [(end(0, 4), end(2, 1))].into());
        assert!(observer.sight(now + STALE).links.is_empty());
        observer.hear(end(2, 1), &frame, now + STALE);
        assert!(observer.sight(now + STALE).links.is_empty());
        observer.begin_round();
        let moved = observer.probe(end(0, 4));
        observer.hear(end(3, 9), &moved, now + STALE);
        let sight = observer.sight(now + STALE);
        assert_eq!(sight.links, [(end(0, 4), end(3, 9))].into());
    }

    /// Wires by number of port: a permutation of ports, some of them cut in one direction.
    fn wires() -> impl Strategy<Value = Vec<(End, End)>> {
        let ends = (0..24u16)
            .map(|n| end(u32::from(n) / 4, n % 4))
            .collect::<Vec<_>>();
        let pairs = |ends: Vec<End>| ends.chunks(2).map(|pair| (pair[0], pair[1])).collect();
        Just(ends).prop_shuffle().prop_map(pairs)
    }

    proptest! {
        /// Whatever is cabled and whatever is lost: what is seen was delivered, and what was
        /// delivered in time is seen.
        #[test]
        fn sight_is_what_arrives(
            wires in wires(),
            rounds in proptest::collection::vec(proptest::collection::vec(any::<bool>(), 24), 1..8),
        ) {
            let (mut observer, mut now) = (observer(), Instant::now());
            let mut last = BTreeMap::new();
            for arrives in &rounds {
                observer.begin_round();
                let directions = wires.iter().flat_map(|&(a, b)| [(a, b), (b, a)]);
                for ((from, to), arrives) in directions.zip(arrives) {
                    if *arrives {
                        observer.hear(to, &observer.probe(from), now);
                        last.insert(from, (to, now));
                    }
                }
                now += STALE / 3;
                let fresh = last.iter().filter(|(_, (_, at))| now.duration_since(*at) < STALE);
                let expected: BTreeMap<End, End> =
                    fresh.map(|(from, (to, _))| (*from, *to)).collect();
                prop_assert_eq!(observer.sight(now).links, expected);
            }
        }
    }
}
