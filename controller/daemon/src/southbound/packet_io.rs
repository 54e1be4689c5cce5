//! Packet-in and packet-out of all sessions: one queue for what switches send, one round of packets
//! for them to forward.
//!
//! Sessions know nothing of what the packets are for; [`discovery`](crate::discovery) is at the
//! other end. The decision: both directions are lossy. A packet-in that finds the queue full is
//! dropped, and a new round replaces the one before, so a slow switch delays nobody.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;

use p4::codec::{PacketIn, PacketOut};
use tokio::sync::{mpsc, watch};
use topology::SwitchId;

use super::connection::OutgoingMessage;

/// A packet-in and the switch that sent it.
pub(crate) type SwitchPacket = (SwitchId, PacketIn);

/// The session side of packet I/O.
#[derive(Clone, Debug)]
pub(crate) struct PacketIo {
    received: mpsc::Sender<SwitchPacket>,
    rounds: watch::Receiver<Arc<PacketOutRound>>,
}

/// Packets that the switches are to send now.
#[derive(Clone, Debug, Default)]
pub(crate) struct PacketOutRound {
    packets: BTreeMap<SwitchId, Vec<PacketOut>>,
}

impl PacketIo {
    /// Packet I/O with a queue of `queue` packet-ins, and its two ends for the application.
    pub(crate) fn new(
        queue: usize,
    ) -> (Self, mpsc::Receiver<SwitchPacket>, watch::Sender<Arc<PacketOutRound>>) {
        let (to_application, received) = mpsc::channel(queue);
        let (rounds, to_sessions) = watch::channel(Arc::default());
        (Self { received: to_application, rounds: to_sessions }, received, rounds)
    }

    /// Queues a packet-in, or drops it where the queue is full.
    pub(crate) fn deliver_packet_in(&self, switch: SwitchId, packet: PacketIn) {
        drop(self.received.try_send((switch, packet)));
    }

    /// Sends each new round on the stream of a switch.
    pub(crate) async fn send_packets_out(
        &self,
        switch: SwitchId,
        outgoing: mpsc::Sender<OutgoingMessage>,
    ) -> Infallible {
        let mut rounds = self.rounds.clone();
        while rounds.changed().await.is_ok() {
            // Cloned out, because the borrow of a `watch` is a lock and must not be held across the
            // sends.
            let round = Arc::clone(&rounds.borrow_and_update());
            for packet in round.packets_for(switch) {
                // A closed stream is detected by the session that reads it.
                drop(outgoing.send(OutgoingMessage::Packet(packet.clone())).await);
            }
        }
        // Discovery has ended. Returning would end the select of the session, and the mastership
        // with it.
        std::future::pending().await
    }
}

impl PacketOutRound {
    /// A round of packets for each switch.
    pub(crate) fn new(packets: BTreeMap<SwitchId, Vec<PacketOut>>) -> Self {
        Self { packets }
    }

    fn packets_for(&self, switch: SwitchId) -> &[PacketOut] {
        self.packets.get(&switch).map_or(&[], Vec::as_slice)
    }
}
