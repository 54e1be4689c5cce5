//! The least that a client must do to write: requests made beforehand or each when it is sent.

use std::time::Duration;

use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt, TryStreamExt, stream};
use p4::{TableUpdate, UpdateKind, codec};
use p4runtime_proto::v1 as p4rt;
use p4runtime_proto::v1::p4_runtime_client::P4RuntimeClient;
use p4runtime_proto::v1::stream_message_request::Update as ToSwitch;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Channel;
use tonic::{Status, Streaming};
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
        let writes = requests.into_iter().map(|request| self.send_request(request).boxed());
        time_writes(writes.collect(), outstanding).await
    }

    /// Writes them with requests that are made when they are sent.
    pub(crate) async fn write(
        &self,
        updates: &[TableUpdate],
        batch: usize,
        outstanding: usize,
    ) -> Result<Duration, Failed> {
        let write = |updates| async move { self.send_request(self.request(updates)).await }.boxed();
        time_writes(self.batches(updates, batch).map(write).collect(), outstanding).await
    }

    /// Reads all entries of all tables, as the controller does after it has written. A switch whose
    /// memory a read has gone through removes entries more slowly.
    pub(crate) async fn read_tables(&self) -> Result<(), Failed> {
        let everything = p4rt::entity::Entity::TableEntry(p4rt::TableEntry::default());
        let request = p4rt::ReadRequest {
            device_id: self.device_id,
            entities: vec![p4rt::Entity { entity: Some(everything) }],
            ..Default::default()
        };
        let mut answer = self.calls.clone().read(request).await?.into_inner();
        while answer.message().await?.is_some() {}
        Ok(())
    }

    async fn send_request(&self, request: p4rt::WriteRequest) -> Result<(), Status> {
        self.calls.clone().write(request).await.map(|_| ())
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

    fn request(&self, updates: &[TableUpdate]) -> p4rt::WriteRequest {
        p4rt::WriteRequest {
            device_id: self.device_id,
            election_id: Some(self.election),
            updates: updates.iter().map(codec::encode_update).collect(),
            ..Default::default()
        }
    }
}

/// How long it takes until all are answered, so many at a time.
async fn time_writes(
    writes: Vec<BoxFuture<'_, Result<(), Status>>>,
    outstanding: usize,
) -> Result<Duration, Failed> {
    let begun = Instant::now();
    let answers = stream::iter(writes).buffered(outstanding);
    answers.try_for_each(|()| async { Ok(()) }).await?;
    Ok(begun.elapsed())
}
