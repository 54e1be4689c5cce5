//! The least that a client must do to write: requests made beforehand or each when it is sent.

use std::time::Duration;

use futures::{StreamExt, TryStreamExt, stream};
use p4::{TableUpdate, UpdateKind, codec};
use p4runtime_proto::v1 as p4rt;
use p4runtime_proto::v1::p4_runtime_client::P4RuntimeClient;
use p4runtime_proto::v1::stream_message_request::Update as ToSwitch;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;
use tonic::transport::Channel;
use topology::Switch;

use crate::Failed;
use crate::protection::ConnectionSecurity;

/// A client that is primary.
pub(crate) struct Bare {
    calls: P4RuntimeClient<Channel>,
    device_id: u64,
    election: p4rt::Uint128,
    /// Both ends of the stream, which lasts as long as they do.
    _stream: (mpsc::Sender<p4rt::StreamMessageRequest>, Streaming<p4rt::StreamMessageResponse>),
}

impl Bare {
    /// Connects and becomes primary of a switch where nobody has led in this term yet.
    pub(crate) async fn connect(
        switch: &Switch,
        term: u64,
        protection: ConnectionSecurity,
    ) -> Result<Self, Failed> {
        let address = switch.p4runtime.as_deref().unwrap_or_default();
        let mut calls = P4RuntimeClient::new(protection.connect(address).await?);
        let election = p4rt::Uint128 { high: term, low: 1 };
        let (outgoing, queue) = mpsc::channel(1);
        let bid = ToSwitch::Arbitration(p4rt::MasterArbitrationUpdate {
            device_id: switch.device_id,
            election_id: Some(election),
            ..Default::default()
        });
        outgoing.try_send(p4rt::StreamMessageRequest { update: Some(bid) })?;
        let answers = calls.stream_channel(ReceiverStream::new(queue)).await?;
        let mut answers = answers.into_inner();
        answers.message().await?;
        Ok(Self { calls, device_id: switch.device_id, election, _stream: (outgoing, answers) })
    }

    /// Writes updates in batches of `batch`, `outstanding` at a time, with requests that are made
    /// beforehand; how long that takes.
    pub(crate) async fn write_prepared(
        &self,
        updates: &[TableUpdate],
        batch: usize,
        outstanding: usize,
    ) -> Result<Duration, Failed> {
        let requests: Vec<_> = self.batches(updates, batch).map(|it| self.request(it)).collect();
        self.send_requests(requests.into_iter(), outstanding).await
    }

    /// Writes them with requests that are made when they are sent.
    pub(crate) async fn write(
        &self,
        updates: &[TableUpdate],
        batch: usize,
        outstanding: usize,
    ) -> Result<Duration, Failed> {
        let requests = self.batches(updates, batch).map(|it| self.request(it));
        self.send_requests(requests, outstanding).await
    }

    fn batches<'a>(
        &self,
        updates: &'a [TableUpdate],
        batch: usize,
    ) -> impl Iterator<Item = &'a [TableUpdate]> {
        let kind =
            |update: &TableUpdate| (update.entry.key.table, update.kind == UpdateKind::Delete);
        let stages = updates.chunk_by(move |a, b| kind(a) == kind(b));
        stages.flat_map(move |stage| stage.chunks(batch))
    }

    async fn send_requests(
        &self,
        requests: impl Iterator<Item = p4rt::WriteRequest>,
        outstanding: usize,
    ) -> Result<Duration, Failed> {
        let begun = Instant::now();
        let write = |request| {
            let mut calls = self.calls.clone();
            async move { calls.write(request).await }
        };
        let answers = stream::iter(requests.map(write));
        answers.buffered(outstanding).try_for_each(|_| async { Ok(()) }).await?;
        Ok(begun.elapsed())
    }

    fn request(&self, updates: &[TableUpdate]) -> p4rt::WriteRequest {
        p4rt::WriteRequest {
            device_id: self.device_id,
            election_id: Some(self.election),
            updates: updates.iter().map(codec::encode_update).collect(),
            ..Default::default()
        }
    }
}
