//! The calls to etcd that a member makes, each with a deadline.
//!
//! The messages are the few of etcd's API in `proto/etcd.proto`. The decision: every read and write
//! is one transaction, so reads are of one revision and writes are guarded.

use std::time::Duration;

use futures::{StreamExt, future, stream};
use pb::auth_client::AuthClient;
use pb::kv_client::KvClient;
use pb::lease_client::LeaseClient;
use pb::request_op::Request;
use pb::response_op::Response;
use pb::watch_client::WatchClient;
use serde::de::DeserializeOwned;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_stream::wrappers::ReceiverStream;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status};

use super::cluster_store::{
    ClusterNetwork, ClusterSnapshot, ClusterStore, GrantedLease, StoreChanges,
};
use super::keys::{EtcdKeys, to_json};
use super::lease_state::ElectedLeader;
use super::login::{EtcdLogin, TokenInterceptor, is_token_expired};
use super::plan_pieces::PlanManifest;
use crate::config::{EtcdConfig, TlsConfig};
use crate::southbound::GrpcNetwork;
use crate::store::{StoreRecord, StoredState};

/// The largest answer. A snapshot has four documents, each of which may be as large as etcd takes
/// in one request.
const ANSWER_BYTES: usize = 16 << 20;

/// What a controller says that most switches answer, and one that few answer.
const REACHES_MOST: &[u8] = b"most";
const REACHES_FEW: &[u8] = b"few";

/// etcd's messages, as `proto/etcd.proto` has them.
#[allow(missing_docs, unreachable_pub, clippy::all, clippy::pedantic)]
mod pb {
    tonic::include_proto!("etcdserverpb");
}

/// A call to etcd that did not succeed.
#[derive(Debug, thiserror::Error)]
pub enum EtcdError {
    /// The address is no `host:port`.
    #[error("invalid etcd endpoint `{0}`: it must be host:port")]
    Address(String),
    /// Nothing answers at the address.
    #[error("cannot connect to etcd at {endpoint}")]
    Connect {
        /// The address.
        endpoint: String,
        /// Why.
        #[source]
        source: tonic::transport::Error,
    },
    /// The user or the password are wrong, or etcd has no users.
    #[error("etcd refused the login of `{user}`: {message}; see etcd.user and etcd.password")]
    Login {
        /// The user name.
        user: String,
        /// The message of etcd.
        message: String,
    },
    /// etcd has users, and none is configured.
    #[error("etcd requires a login: set etcd.user and etcd.password")]
    NoUser,
    /// The user may not do this.
    #[error("etcd denied {0} to its user: grant it readwrite on all keys below etcd.prefix")]
    Denied(&'static str),
    /// No answer in time.
    #[error("no answer from etcd to {0} within the deadline")]
    Deadline(&'static str),
    /// An answer that is an error.
    #[error("etcd refused {call}: {message}")]
    Call {
        /// What was called.
        call: &'static str,
        /// The message of etcd.
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
    Unreachable,
    /// The stored value is not what belongs there.
    #[error(
        "cannot read the {what} in etcd; if an older version of crux wrote it, delete what is \
         below etcd.prefix (`etcdctl del --prefix`) and run `crux policy apply` again"
    )]
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
pub struct EtcdClient {
    channel: InterceptedService<Channel, TokenInterceptor>,
    login: Option<EtcdLogin>,
    deadline: Duration,
    keys: EtcdKeys,
}

impl EtcdClient {
    /// Connects to a server of an etcd.
    ///
    /// # Errors
    /// The address is invalid, nobody answers there before the deadline, or etcd does not let the
    /// user in.
    pub(crate) async fn connect(endpoint: &str, etcd: &EtcdConfig) -> Result<Self, EtcdError> {
        let (deadline, keys) = (etcd.deadline, EtcdKeys::new(&etcd.prefix));
        let tls = etcd.tls.as_ref();
        let plain = Endpoint::try_from(TlsConfig::server_uri(tls, endpoint))
            .map_err(|_| EtcdError::Address(endpoint.to_owned()))?;
        let (secured, _) = TlsConfig::secure_endpoint(tls, plain)
            .map_err(|source| EtcdError::Connect { endpoint: endpoint.to_owned(), source })?;
        let address = secured.connect_timeout(deadline).tcp_nodelay(true);
        let in_time = timeout(deadline, address.connect()).await;
        let channel = in_time
            .map_err(|_| EtcdError::Deadline("connect"))?
            .map_err(|source| EtcdError::Connect { endpoint: endpoint.to_owned(), source })?;
        let user = etcd.user.clone();
        let login = user.map(|user| EtcdLogin::new(user, channel.clone()));
        let bearer =
            login.as_ref().map_or_else(TokenInterceptor::default, EtcdLogin::token_interceptor);
        let calls =
            Self { channel: InterceptedService::new(channel, bearer), login, deadline, keys };
        if let Some(login) = &calls.login {
            let logged_in = timeout(deadline, calls.log_in(login)).await;
            logged_in.map_err(|_| EtcdError::Deadline("Authenticate"))??;
        }
        Ok(calls)
    }

    /// Requests a token for the user's password.
    async fn log_in(&self, login: &EtcdLogin) -> Result<(), EtcdError> {
        let mut client = AuthClient::new(login.channel.clone());
        let call = client.authenticate(pb::AuthenticateRequest {
            name: login.user.name.clone(),
            password: login.user.password.clone(),
        });
        let answer = call.await.map_err(|status| login.login_error(status.message()))?;
        login.set_token(&answer.into_inner().token)
    }

    /// One transaction, which is done or not.
    async fn run_transaction(
        &self,
        compare: Vec<pb::Compare>,
        requests: Vec<Request>,
    ) -> Result<pb::TxnResponse, EtcdError> {
        let operations = requests.into_iter().map(|it| pb::RequestOp { request: Some(it) });
        let request =
            pb::TxnRequest { compare, success: operations.collect(), failure: Vec::new() };
        let answer = self.call_within_deadline("Txn", || {
            let client = KvClient::new(self.channel.clone());
            let (mut client, request) =
                (client.max_decoding_message_size(ANSWER_BYTES), request.clone());
            async move { client.txn(request).await }
        });
        Ok(answer.await?.into_inner())
    }

    /// One transaction of the leader elected at this revision. A leader that was deposed fails,
    /// even if it does not know yet.
    async fn run_as_leader(&self, elected: u64, requests: Vec<Request>) -> Result<(), EtcdError> {
        let guard = created_at(self.keys.leader_key(), elected);
        let answer = self.run_transaction(vec![guard], requests).await?;
        answer.succeeded.then_some(()).ok_or(EtcdError::NotLeader)
    }

    /// Calls etcd, and once more after a new login if the token has expired; all of it within the
    /// deadline.
    async fn call_within_deadline<T, A>(
        &self,
        call: &'static str,
        send: impl Fn() -> A,
    ) -> Result<T, EtcdError>
    where
        A: Future<Output = Result<T, Status>>,
    {
        let answered = async {
            match (send().await, &self.login) {
                (Err(status), Some(login)) if is_token_expired(&status) => {
                    self.log_in(login).await?;
                    send().await.map_err(|status| call_error(call, &status))
                }
                (answer, _) => answer.map_err(|status| call_error(call, &status)),
            }
        };
        let answer = timeout(self.deadline, answered).await;
        answer.map_err(|_| EtcdError::Deadline(call))?
    }
}

impl ClusterNetwork for GrpcNetwork {
    type Store = EtcdClient;

    async fn connect_store(
        &self,
        server: &str,
        etcd: &EtcdConfig,
    ) -> Result<EtcdClient, EtcdError> {
        EtcdClient::connect(server, etcd).await
    }
}

impl ClusterStore for EtcdClient {
    async fn grant_lease(&self, lasts: Duration) -> Result<GrantedLease, EtcdError> {
        let ttl = i64::try_from(lasts.as_secs()).unwrap_or(i64::MAX);
        let call = self.call_within_deadline("LeaseGrant", || {
            let mut client = LeaseClient::new(self.channel.clone());
            async move { client.lease_grant(pb::LeaseGrantRequest { ttl }).await }
        });
        let answer = call.await?.into_inner();
        Ok(GrantedLease { lease: answer.id, ttl: ttl_duration(answer.ttl) })
    }

    async fn renew_lease(&self, lease: i64) -> Result<Option<Duration>, EtcdError> {
        let call = self.call_within_deadline("LeaseKeepAlive", || {
            let once = tokio_stream::once(pb::LeaseKeepAliveRequest { id: lease });
            let mut client = LeaseClient::new(self.channel.clone());
            async move {
                let mut answers = client.lease_keep_alive(once).await?.into_inner();
                answers.message().await
            }
        });
        let ttl = call.await?.map_or(0, |answer| answer.ttl);
        Ok((ttl > 0).then(|| ttl_duration(ttl)))
    }

    async fn revoke_lease(&self, lease: i64) -> Result<(), EtcdError> {
        let call = self.call_within_deadline("LeaseRevoke", || {
            let mut client = LeaseClient::new(self.channel.clone());
            async move { client.lease_revoke(pb::LeaseRevokeRequest { id: lease }).await }
        });
        call.await.map(drop)
    }

    async fn register_controller(&self, controller: u32, lease: i64) -> Result<u64, EtcdError> {
        let key = self.keys.controller_key(controller);
        let put = put_request(key, controller.to_string().into_bytes(), lease);
        Ok(header_revision(&self.run_transaction(Vec::new(), vec![put]).await?))
    }

    async fn publish_reach(
        &self,
        controller: u32,
        lease: i64,
        reaches_most: bool,
    ) -> Result<(), EtcdError> {
        let value = if reaches_most { REACHES_MOST } else { REACHES_FEW };
        let put = put_request(self.keys.reach_key(controller), value.to_vec(), lease);
        self.run_transaction(Vec::new(), vec![put]).await.map(drop)
    }

    async fn stand_for_election(
        &self,
        controller: u32,
        address: Option<&str>,
        lease: i64,
    ) -> Result<(), EtcdError> {
        let key = self.keys.leader_key();
        let vacant = created_at(key.clone(), 0);
        let mut puts = vec![put_request(key, controller.to_string().into_bytes(), lease)];
        puts.extend(address.map(|address| {
            put_request(self.keys.leader_address_key(), address.as_bytes().to_vec(), lease)
        }));
        self.run_transaction(vec![vacant], puts).await.map(drop)
    }

    async fn store_record(&self, record: &StoreRecord, elected: u64) -> Result<(), EtcdError> {
        let mut rows = vec![self.keys.latest_row(record)];
        if let StoreRecord::Policy(revision) = record {
            rows.push(self.keys.revision_row(revision));
        }
        let puts = rows.into_iter().map(|(key, value)| put_request(key, value, 0));
        self.run_as_leader(elected, puts.collect()).await
    }

    async fn store_plan_piece(
        &self,
        plan: &PlanManifest,
        index: u32,
        piece: &[u8],
    ) -> Result<(), EtcdError> {
        let put = put_request(self.keys.plan_piece_key(plan, index), piece.to_vec(), 0);
        self.run_as_leader(plan.election, vec![put]).await
    }

    async fn publish_plan(&self, plan: &PlanManifest) -> Result<(), EtcdError> {
        let (first, end) = self.keys.plan_pieces_range(plan);
        let (first_of_all, end_of_all) = self.keys.all_pieces_range();
        // With the manifest and not before it, so that at any revision the manifest names pieces
        // that are there. What a leader left that died between two pieces goes as well.
        let requests = vec![
            delete_request(first_of_all, first),
            delete_request(end, end_of_all),
            put_request(self.keys.plan_key(), to_json(plan), 0),
        ];
        self.run_as_leader(plan.election, requests).await
    }

    async fn read_plan_piece(
        &self,
        plan: &PlanManifest,
        index: u32,
    ) -> Result<Option<Vec<u8>>, EtcdError> {
        let request = range_request(self.keys.plan_piece_key(plan, index));
        let answer = self.run_transaction(Vec::new(), vec![request]).await?;
        Ok(range_rows(answer).next().flatten().map(|row| row.value))
    }

    async fn read_snapshot(&self) -> Result<ClusterSnapshot, EtcdError> {
        let keys = [
            self.keys.leader_key(),
            self.keys.generation_key(),
            self.keys.policy_key(),
            self.keys.jobs_key(),
            self.keys.reported_jobs_key(),
            self.keys.fabric_key(),
            self.keys.fabric_history_key(),
            self.keys.leader_address_key(),
            self.keys.plan_key(),
        ];
        let (key, range_end) = self.keys.reach_range();
        let reach = Request::RequestRange(pb::RangeRequest { key, range_end });
        let requests = keys.map(range_request).into_iter().chain([reach]);
        let mut answer = self.run_transaction(Vec::new(), requests.collect()).await?;
        let revision = header_revision(&answer);
        let reaching = reaching_controllers(answer.responses.pop());
        let mut found = range_rows(answer);
        let leader = found.next().flatten().map(|row| ElectedLeader {
            revision: row.create_revision.cast_unsigned(),
            lease: row.lease,
            controller: String::from_utf8_lossy(&row.value).parse().unwrap_or(0),
        });
        let [generation, policy, jobs, reported, fabric, fabric_history, address, plan] =
            std::array::from_fn(|_| found.next().flatten().map(|row| row.value));
        let stored_generation: Option<u64> =
            generation.map(|value| parse_value("generation", &value)).transpose()?;
        let stored = StoredState {
            term: 0,
            generation: stored_generation.unwrap_or(0),
            policy: policy.map(|value| parse_value("policy", &value)).transpose()?,
            jobs: jobs.map(|value| parse_value("jobs", &value)).transpose()?,
            reported_jobs: reported.map(|value| parse_value("told", &value)).transpose()?,
            fabric: fabric.map(|value| parse_value("fabric", &value)).transpose()?,
            fabric_history: fabric_history
                .map(|value| parse_value("fabric_history", &value))
                .transpose()?,
        };
        // One of an older version has left none, and that of the leader before it is gone with its
        // lease.
        let leader_address = address.map(|value| String::from_utf8_lossy(&value).into_owned());
        let plan = plan.map(|value| parse_value("plan", &value)).transpose()?;
        Ok(ClusterSnapshot { revision, leader, leader_address, reaching, stored, plan })
    }

    async fn watch_changes(&self, revision: u64) -> Result<StoreChanges, EtcdError> {
        let (key, range_end) = self.keys.watched_range();
        let create = pb::WatchCreateRequest {
            key,
            range_end,
            start_revision: revision.cast_signed().saturating_add(1),
        };
        let create = pb::watch_request::RequestUnion::CreateRequest(create);
        let first = pb::WatchRequest { request_union: Some(create) };
        let call = self.call_within_deadline("Watch", || {
            let (request, queue) = mpsc::channel(1);
            request.try_send(first.clone()).expect("a new queue has room for one message");
            let mut client = WatchClient::new(self.channel.clone());
            async move {
                let answers = client.watch(ReceiverStream::new(queue)).await?;
                Ok((request, answers.into_inner()))
            }
        });
        let (request, answers) = call.await?;
        let ended = stream::once(async { Err(EtcdError::WatchEnded) });
        let changes = answers.filter_map(move |answer| {
            // Dropping the request stream would cancel the watch.
            let _lasts = &request;
            future::ready(watch_event(answer))
        });
        Ok(changes.chain(ended).boxed())
    }
}

/// The error of a call that etcd refused.
fn call_error(call: &'static str, status: &Status) -> EtcdError {
    let message = status.message().to_owned();
    match status.code() {
        Code::PermissionDenied => EtcdError::Denied(call),
        Code::InvalidArgument if message.contains("user name is empty") => EtcdError::NoUser,
        _ => EtcdError::Call { call, message },
    }
}

/// The event in an answer to a watch; the first answer only confirms the watch.
fn watch_event(answer: Result<pb::WatchResponse, Status>) -> Option<Result<(), EtcdError>> {
    match answer {
        Err(_) => Some(Err(EtcdError::WatchEnded)),
        Ok(answer) if answer.canceled => Some(Err(EtcdError::WatchEnded)),
        Ok(answer) => (!answer.created).then_some(Ok(())),
    }
}

/// What was found under each key that was asked for.
fn range_rows(answer: pb::TxnResponse) -> impl Iterator<Item = Option<pb::KeyValue>> {
    let answers = answer.responses.into_iter();
    answers.map(|answer| match answer.response {
        Some(Response::ResponseRange(mut range)) => range.kvs.pop(),
        _ => None,
    })
}

/// The controllers that say that most switches answer them.
fn reaching_controllers(answer: Option<pb::ResponseOp>) -> Vec<u32> {
    let Some(Response::ResponseRange(range)) = answer.and_then(|answer| answer.response) else {
        return Vec::new();
    };
    let most = range.kvs.iter().filter(|row| row.value == REACHES_MOST);
    let numbers = most.filter_map(|row| {
        let number = row.key.rsplit(|byte| *byte == b'/').next()?;
        std::str::from_utf8(number).ok()?.parse().ok()
    });
    numbers.collect()
}

fn parse_value<T: DeserializeOwned>(what: &'static str, value: &[u8]) -> Result<T, EtcdError> {
    serde_json::from_slice(value).map_err(|source| EtcdError::Content { what, source })
}

fn header_revision(answer: &pb::TxnResponse) -> u64 {
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

fn put_request(key: Vec<u8>, value: Vec<u8>, lease: i64) -> Request {
    Request::RequestPut(pb::PutRequest { key, value, lease })
}

fn delete_request(key: Vec<u8>, range_end: Vec<u8>) -> Request {
    Request::RequestDeleteRange(pb::DeleteRangeRequest { key, range_end })
}

fn range_request(key: Vec<u8>) -> Request {
    Request::RequestRange(pb::RangeRequest { key, range_end: Vec::new() })
}

fn ttl_duration(ttl: i64) -> Duration {
    Duration::from_secs(ttl.max(0).cast_unsigned())
}
