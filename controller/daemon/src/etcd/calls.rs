//! The calls to etcd that a member makes, each with a deadline.
//!
//! The messages are the few of etcd's API in `proto/etcd.proto`. The decision: every read and write
//! is one transaction, so what is read is of one revision and what is written is guarded.

use std::time::Duration;

use futures::{StreamExt, future, stream};
use pb::kv_client::KvClient;
use pb::lease_client::LeaseClient;
use pb::request_op::Request;
use pb::response_op::Response;
use pb::watch_client::WatchClient;
use serde::de::DeserializeOwned;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;
use tonic::transport::{Channel, Endpoint};

use super::keys::Keys;
use super::registry::{Changes, Granted, Registry, Snapshot};
use super::tenure::Leader;
use crate::config::Etcd;
use crate::store::{Memory, Record};

/// etcd's messages, as `proto/etcd.proto` has them.
#[allow(missing_docs, unreachable_pub, clippy::all, clippy::pedantic)]
mod pb {
    tonic::include_proto!("etcdserverpb");
}

/// A call to etcd that did not succeed.
#[derive(Debug, thiserror::Error)]
pub enum EtcdError {
    /// The address is no `host:port`.
    #[error("`{0}` is no address of an etcd server")]
    Address(String),
    /// Nobody answers there.
    #[error("cannot connect to etcd at {endpoint}")]
    Connect {
        /// Where.
        endpoint: String,
        /// Why.
        #[source]
        source: tonic::transport::Error,
    },
    /// No answer in time.
    #[error("no answer from etcd to {0} within the deadline")]
    Deadline(&'static str),
    /// An answer that is an error.
    #[error("etcd refused {call}: {message}")]
    Call {
        /// What was called.
        call: &'static str,
        /// etcd's words.
        message: String,
    },
    /// The watch ended.
    #[error("etcd ended the watch")]
    WatchEnded,
    /// Another controller leads, or none.
    #[error("another controller leads now")]
    NotLeader,
    /// The controller is not connected to etcd.
    #[error("etcd is out of reach")]
    Away,
    /// What is stored is not what belongs there.
    #[error("the {what} in etcd cannot be read")]
    Content {
        /// Which key.
        what: &'static str,
        /// Why.
        #[source]
        source: serde_json::Error,
    },
}

/// One connection to one etcd server over gRPC.
#[derive(Clone, Debug)]
pub struct Calls {
    channel: Channel,
    deadline: Duration,
    keys: Keys,
}

impl Calls {
    /// Connects to a server of an etcd.
    ///
    /// # Errors
    /// The address is none, or nobody answers there before the deadline.
    pub(crate) async fn connect(endpoint: &str, etcd: &Etcd) -> Result<Self, EtcdError> {
        let (deadline, keys) = (etcd.deadline, Keys::new(&etcd.prefix));
        let address = Endpoint::try_from(format!("http://{endpoint}"));
        let address = address.map_err(|_| EtcdError::Address(endpoint.to_owned()))?;
        let connecting = address.connect_timeout(deadline).tcp_nodelay(true);
        let connecting = timeout(deadline, connecting.connect()).await;
        let connected = connecting.map_err(|_| EtcdError::Deadline("connect"))?;
        let channel = connected.map_err(|source| EtcdError::Connect {
            endpoint: endpoint.to_owned(),
            source,
        })?;
        Ok(Self {
            channel,
            deadline,
            keys,
        })
    }

    /// One transaction, which is done or not.
    async fn transact(
        &self,
        compare: Vec<pb::Compare>,
        requests: Vec<Request>,
    ) -> Result<pb::TxnResponse, EtcdError> {
        let operation = |request| pb::RequestOp {
            request: Some(request),
        };
        let request = pb::TxnRequest {
            compare,
            success: requests.into_iter().map(operation).collect(),
            failure: Vec::new(),
        };
        let mut client = KvClient::new(self.channel.clone());
        let answer = self.within("Txn", client.txn(request)).await?;
        Ok(answer.into_inner())
    }

    async fn within<T>(
        &self,
        call: &'static str,
        answer: impl Future<Output = Result<T, Status>>,
    ) -> Result<T, EtcdError> {
        let answer = timeout(self.deadline, answer).await;
        let answer = answer.map_err(|_| EtcdError::Deadline(call))?;
        answer.map_err(|status| EtcdError::Call {
            call,
            message: status.message().to_owned(),
        })
    }
}

impl Registry for Calls {
    async fn grant(&self, lasts: Duration) -> Result<Granted, EtcdError> {
        let ttl = i64::try_from(lasts.as_secs()).unwrap_or(i64::MAX);
        let mut client = LeaseClient::new(self.channel.clone());
        let answer = client.lease_grant(pb::LeaseGrantRequest { ttl });
        let answer = self.within("LeaseGrant", answer).await?.into_inner();
        Ok(Granted {
            lease: answer.id,
            lasts: seconds(answer.ttl),
        })
    }

    async fn renew(&self, lease: i64) -> Result<Option<Duration>, EtcdError> {
        let once = tokio_stream::once(pb::LeaseKeepAliveRequest { id: lease });
        let mut client = LeaseClient::new(self.channel.clone());
        let answer = async {
            let mut answers = client.lease_keep_alive(once).await?.into_inner();
            answers.message().await
        };
        let answer = self.within("LeaseKeepAlive", answer).await?;
        let ttl = answer.map_or(0, |answer| answer.ttl);
        Ok((ttl > 0).then(|| seconds(ttl)))
    }

    async fn revoke(&self, lease: i64) -> Result<(), EtcdError> {
        let mut client = LeaseClient::new(self.channel.clone());
        let answer = client.lease_revoke(pb::LeaseRevokeRequest { id: lease });
        self.within("LeaseRevoke", answer).await.map(drop)
    }

    async fn register(&self, controller: u32, lease: i64) -> Result<u64, EtcdError> {
        let key = self.keys.controller(controller);
        let put = put(key, controller.to_string().into_bytes(), lease);
        Ok(revision(&self.transact(Vec::new(), vec![put]).await?))
    }

    async fn stand(&self, controller: u32, lease: i64) -> Result<(), EtcdError> {
        let key = self.keys.leader();
        let vacant = created_at(key.clone(), 0);
        let put = put(key, controller.to_string().into_bytes(), lease);
        self.transact(vec![vacant], vec![put]).await.map(drop)
    }

    async fn store(&self, record: &Record, elected: u64) -> Result<(), EtcdError> {
        let mut puts = vec![self.keys.latest(record)];
        if let Record::Policy(edition) = record {
            puts.push(self.keys.edition(edition));
        }
        let puts = puts.into_iter().map(|(key, value)| put(key, value, 0));
        let guard = created_at(self.keys.leader(), elected);
        let answer = self.transact(vec![guard], puts.collect()).await?;
        answer.succeeded.then_some(()).ok_or(EtcdError::NotLeader)
    }

    async fn read(&self) -> Result<Snapshot, EtcdError> {
        let keys = [
            self.keys.leader(),
            self.keys.generation(),
            self.keys.policy(),
            self.keys.jobs(),
            self.keys.told(),
            self.keys.fabric(),
        ];
        let answer = self.transact(Vec::new(), keys.map(range).into()).await?;
        let revision = revision(&answer);
        let mut found = rows(answer);
        let leader = found.next().flatten().map(|row| Leader {
            revision: row.create_revision.cast_unsigned(),
            lease: row.lease,
            controller: String::from_utf8_lossy(&row.value).parse().unwrap_or(0),
        });
        let [generation, policy, jobs, told, fabric] =
            std::array::from_fn(|_| found.next().flatten().map(|row| row.value));
        let generation = generation
            .map(|value| parse("generation", &value))
            .transpose()?;
        let memory = Memory {
            term: 0,
            generation: generation.unwrap_or(0),
            policy: policy.map(|value| parse("policy", &value)).transpose()?,
            jobs: jobs.map(|value| parse("jobs", &value)).transpose()?,
            told: told.map(|value| parse("told", &value)).transpose()?,
            fabric: fabric.map(|value| parse("fabric", &value)).transpose()?,
        };
        Ok(Snapshot {
            revision,
            leader,
            memory,
        })
    }

    async fn watch(&self, revision: u64) -> Result<Changes, EtcdError> {
        let (key, range_end) = self.keys.all();
        let create = pb::WatchCreateRequest {
            key,
            range_end,
            start_revision: revision.cast_signed().saturating_add(1),
        };
        let create = pb::watch_request::RequestUnion::CreateRequest(create);
        let (request, queue) = mpsc::channel(1);
        let first = pb::WatchRequest {
            request_union: Some(create),
        };
        request
            .try_send(first)
            .expect("a new queue has room for one message");
        let mut client = WatchClient::new(self.channel.clone());
        let answers = client.watch(ReceiverStream::new(queue));
        let answers = self.within("Watch", answers).await?.into_inner();
        let ended = stream::once(async { Err(EtcdError::WatchEnded) });
        let changes = answers.filter_map(move |answer| {
            // As long as the request is there, etcd watches.
            let _lasts = &request;
            future::ready(change(answer))
        });
        Ok(changes.chain(ended).boxed())
    }
}

/// What an answer to a watch says; the first says only that the watch is there.
fn change(answer: Result<pb::WatchResponse, Status>) -> Option<Result<(), EtcdError>> {
    match answer {
        Err(_) => Some(Err(EtcdError::WatchEnded)),
        Ok(answer) if answer.canceled => Some(Err(EtcdError::WatchEnded)),
        Ok(answer) => (!answer.created).then_some(Ok(())),
    }
}

/// What was found under each key that was asked for.
fn rows(answer: pb::TxnResponse) -> impl Iterator<Item = Option<pb::KeyValue>> {
    let answers = answer.responses.into_iter();
    answers.map(|answer| match answer.response {
        Some(Response::ResponseRange(mut range)) => range.kvs.pop(),
        _ => None,
    })
}

fn parse<T: DeserializeOwned>(what: &'static str, value: &[u8]) -> Result<T, EtcdError> {
    serde_json::from_slice(value).map_err(|source| EtcdError::Content { what, source })
}

fn revision(answer: &pb::TxnResponse) -> u64 {
    let header = answer.header.as_ref();
    header.map_or(0, |header| header.revision.cast_unsigned())
}

fn created_at(key: Vec<u8>, revision: u64) -> pb::Compare {
    let created = pb::compare::TargetUnion::CreateRevision(revision.cast_signed());
    pb::Compare {
        result: pb::compare::CompareResult::Equal.into(),
        target: pb::compare::CompareTarget::Create.into(),
        key,
        target_union: Some(created),
    }
}

fn put(key: Vec<u8>, value: Vec<u8>, lease: i64) -> Request {
    Request::RequestPut(pb::PutRequest { key, value, lease })
}

fn range(key: Vec<u8>) -> Request {
    Request::RequestRange(pb::RangeRequest { key })
}

fn seconds(ttl: i64) -> Duration {
    Duration::from_secs(ttl.max(0).cast_unsigned())
}
