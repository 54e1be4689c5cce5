//! How packets pass the links of hosts: out of the window of a connection, over the links inside
//! its host and onto the wire, and at the other end from the NIC to the GPU.
//!
//! Every link is a queue in which connections take turns ([`HostLinkScheduler`]). A packet is
//! handed to the next link when it begins on this one (PCIe switches cut through), and only if the
//! next queue has room for one more of its connection: PCIe loses nothing. What comes from the
//! network cannot be held back, so the first queue after the wire takes everything.
//!
//! [`HostLinkScheduler`]: crate::host_link::HostLinkScheduler

use switch::{EndpointOutbox, Nanos};

use super::{ArrivedSegment, HostCluster, TimerToken};
use crate::host_hops::HopDirection;
use crate::roce::{self, PacketBody};
use crate::transport::MessageSegment;

/// A place on the way of a packet in one host.
#[derive(Clone, Copy, Debug)]
pub(super) struct PacketPlace {
    /// The connection of the packet.
    pub(super) connection: usize,
    /// Position of the link before which it waits; beyond the last it has passed all.
    pub(super) hop: usize,
}

impl HostCluster {
    /// Sends what the window allows and makes sure that a timer is set.
    pub(super) fn request_transmission(
        &mut self,
        index: usize,
        now: Nanos,
        out: &mut EndpointOutbox,
    ) {
        let connection = &mut self.connections[index];
        // The timer is not moved when the deadline moves: it expires early, finds nothing to do,
        // and is set again. So a connection has one timer, whatever the number of replies.
        if let (None, Some(deadline)) = (connection.timer, connection.sender.deadline()) {
            connection.timer = Some(deadline);
            out.set_timer(deadline, TimerToken::Connection(index).to_bits());
        }
        self.enqueue_if_ready(index, HopDirection::Outward, 0);
        self.run_links(now, out);
    }

    /// Sends packets while links are free.
    pub(super) fn run_links(&mut self, now: Nanos, out: &mut EndpointOutbox) {
        while let Some(link) = self.ready_links.pop_front() {
            while let Some(index) = self.links[link].next_connection(now) {
                self.serve_connection(index, link, now, out);
            }
            if let Some(at) = self.links[link].take_next_wake() {
                out.set_timer(at, TimerToken::Link(link).to_bits());
            }
        }
    }

    /// Gives a connection whose port has changed a place in the queue of the new one: what waits
    /// there left the queue with the old port.
    pub(super) fn enqueue_before_wire(&mut self, index: usize) {
        if let Some(last) = self.connections[index].outward.last_place() {
            self.enqueue_if_ready(index, HopDirection::Outward, last);
        }
    }

    /// Gives a connection a place in the queue of one of its links if it has a packet there that
    /// may pass.
    fn enqueue_if_ready(&mut self, index: usize, direction: HopDirection, place: usize) {
        let connection = &self.connections[index];
        let has_packet = match (direction, place) {
            (HopDirection::Outward, 0) => connection.sender.can_send(),
            (HopDirection::Outward, _) => connection.outward.has_waiting(place),
            (HopDirection::Inward, _) => connection.inward.has_waiting(place),
        };
        let passable = match direction {
            HopDirection::Outward => connection.outward.passable_link(place),
            HopDirection::Inward => connection.inward.passable_link(place),
        };
        if let Some(link) = passable.filter(|_| has_packet) {
            let priority = roce::priority_of_dscp(self.connections[index].forward.dscp);
            self.links[link].enqueue_connection(index, priority);
            self.ready_links.push_back(link);
        }
    }

    /// The turn of a connection on a link that is free.
    fn serve_connection(
        &mut self,
        index: usize,
        link: usize,
        now: Nanos,
        out: &mut EndpointOutbox,
    ) {
        let connection = &mut self.connections[index];
        if let Some(place) = connection.outward.place_of(link) {
            let segment = match place {
                0 => self.next_segment(index, now, out),
                _ => connection.outward.take(place),
            };
            let Some(segment) = segment else {
                return;
            };
            let overhead = roce::overhead_from(self.connections[index].forward.source.1);
            self.links[link].occupy_link(segment.payload + overhead, now);
            self.pass_outward(PacketPlace { connection: index, hop: place + 1 }, segment, out);
            self.wake_neighbours(index, HopDirection::Outward, place);
        } else if let Some(place) = connection.inward.place_of(link) {
            let Some(segment) = connection.inward.take(place) else {
                return;
            };
            self.links[link].occupy_link(segment.bytes, now);
            self.pass_inward(PacketPlace { connection: index, hop: place + 1 }, segment, now, out);
            self.wake_neighbours(index, HopDirection::Inward, place);
        }
    }

    /// The next packet of a connection, unless its rate makes it wait.
    fn next_segment(
        &mut self,
        index: usize,
        now: Nanos,
        out: &mut EndpointOutbox,
    ) -> Option<MessageSegment> {
        let connection = &mut self.connections[index];
        if let Some(due) = connection.wait_until(now) {
            if !std::mem::replace(&mut connection.is_paced, true) {
                out.set_timer(due, TimerToken::Rate(index).to_bits());
            }
            return None;
        }
        let segment = connection.sender.next_segment()?;
        let bytes = segment.payload + roce::overhead_from(connection.forward.source.1);
        connection.pacer.iter_mut().for_each(|pacer| pacer.handle_sent(bytes, now));
        Some(segment)
    }

    /// Puts a packet into the queue of a link of its host, or onto the wire after the last.
    fn pass_outward(&mut self, at: PacketPlace, segment: MessageSegment, out: &mut EndpointOutbox) {
        let connection = &mut self.connections[at.connection];
        if connection.outward.link_at(at.hop).is_some() {
            connection.outward.put(at.hop, segment);
            return self.enqueue_if_ready(at.connection, HopDirection::Outward, at.hop);
        }
        let MessageSegment { psn, payload, first, last } = segment;
        let body = PacketBody::Data { psn, payload, first, last };
        let port = self.ports.sending_port(connection.source, &connection.forward);
        roce::write_packet(&connection.forward, body, &mut self.packet);
        out.send_packet(port.0, &self.packet);
    }

    /// Puts a packet that has arrived into the queue of a link of its host, or gives it to its
    /// receiver after the last.
    pub(super) fn pass_inward(
        &mut self,
        at: PacketPlace,
        segment: ArrivedSegment,
        now: Nanos,
        out: &mut EndpointOutbox,
    ) {
        let connection = &mut self.connections[at.connection];
        if connection.inward.link_at(at.hop).is_none() {
            return self.receive_data(at.connection, segment, now, out);
        }
        connection.inward.put(at.hop, segment);
        self.enqueue_if_ready(at.connection, HopDirection::Inward, at.hop);
    }

    /// After a packet has left the queue at `place`: its connection may have another one there, and
    /// the link before has room again.
    fn wake_neighbours(&mut self, index: usize, direction: HopDirection, place: usize) {
        self.enqueue_if_ready(index, direction, place);
        if let Some(before) = place.checked_sub(1) {
            self.enqueue_if_ready(index, direction, before);
        }
    }
}
