//! Streams, election ids and who may write.

use std::time::Duration;

use p4runtime_proto::v1 as p4rt;
use switch_server::p4runtime::ServiceOptions;
use switch_server::p4runtime::election::SwitchDialect;
use tonic::Code;

use crate::bench::{Bench, Controller, soon};

#[tokio::test]
async fn only_the_primary_writes_and_backups_receive_its_election_id() {
    let bench = Bench::start(ServiceOptions::default()).await;
    let mut first = bench.controller(5).await;
    let mut second = bench.controller(9).await;
    assert_eq!(first.notice().await, (Code::AlreadyExists, Some(9)));
    let refused = first.commit(1).await.unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied);
    second.commit(1).await.unwrap();
    assert_eq!(second.write(Vec::new()).await.map_err(|status| status.code()), Ok(()));
    let refused = first.write(Vec::new()).await.unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied);
}

/// What the remaining backup hears when the primary leaves, in each dialect.
async fn status_after_the_primary_leaves(dialect: SwitchDialect) -> (Code, Option<u128>) {
    let options = ServiceOptions { dialect, ..ServiceOptions::default() };
    let bench = Bench::start(options).await;
    let mut backup = bench.controller(3).await;
    let primary = bench.controller(5).await;
    backup.notice().await;
    drop(primary);
    backup.notice().await
}

#[tokio::test]
async fn a_vacancy_is_filled_by_bmv2_only() {
    let specified = status_after_the_primary_leaves(SwitchDialect::Specification).await;
    assert_eq!(specified, (Code::NotFound, Some(5)));
    let bmv2 = status_after_the_primary_leaves(SwitchDialect::Bmv2).await;
    assert_eq!(bmv2, (Code::Ok, Some(3)));
}

#[tokio::test]
async fn streams_that_break_the_rules_are_ended() {
    let options = ServiceOptions { max_sessions: 3, ..ServiceOptions::default() };
    let bench = Bench::start(options).await;
    let _holder = bench.controller(5).await;

    let mut copycat = Controller::open(bench.client().await, 5).await;
    copycat.claim(5).await;
    assert_eq!(copycat.next().await.unwrap_err(), Code::InvalidArgument);

    let mut lost = Controller::open(bench.client().await, 6).await;
    lost.claim_for(99, "").await;
    assert_eq!(lost.next().await.unwrap_err(), Code::NotFound);

    let mut fickle = bench.controller(1).await;
    fickle.claim_for(crate::bench::DEVICE, "acl").await;
    assert_eq!(fickle.next().await.unwrap_err(), Code::FailedPrecondition);

    let _second = bench.controller(2).await;
    let _third = bench.controller(3).await;
    let mut client = bench.client().await;
    let requests = tokio_stream::pending::<p4rt::StreamMessageRequest>();
    let refused = soon(client.stream_channel(requests)).await.unwrap_err();
    assert_eq!(refused.code(), Code::ResourceExhausted);
}

/// Finding H5: 16 streams that said nothing locked every controller out.
#[tokio::test]
async fn streams_without_a_claim_keep_no_controller_out() {
    let options = ServiceOptions {
        max_sessions: 3,
        arbitration_deadline: Duration::from_millis(300),
        ..ServiceOptions::default()
    };
    let bench = Bench::start(options).await;
    let mut idle = Vec::new();
    for _ in 0..5 {
        idle.push(Controller::open(bench.client().await, 1).await);
    }
    assert_eq!(idle[0].next().await.unwrap_err(), Code::ResourceExhausted, "it made way");
    let mut real = bench.controller(5).await;
    assert_eq!(idle[4].next().await.unwrap_err(), Code::DeadlineExceeded);
    let _later = bench.controller(6).await;
    assert_eq!(real.notice().await, (Code::AlreadyExists, Some(6)), "those that claimed stay");
}

#[tokio::test]
async fn roles_are_elected_apart() {
    let bench = Bench::start(ServiceOptions::default()).await;
    let mut routing = bench.controller(5).await;
    let mut acl = Controller::open(bench.client().await, 5).await;
    acl.claim_for(crate::bench::DEVICE, "acl").await;
    assert_eq!(acl.notice().await, (Code::Ok, Some(5)));
    routing.commit(1).await.unwrap();
}

#[tokio::test]
async fn a_shut_down_switch_ends_its_streams() {
    let bench = Bench::start(ServiceOptions::default()).await;
    let mut controller = bench.controller(5).await;
    soon(bench.server.shutdown()).await;
    assert_eq!(controller.next().await.unwrap_err(), Code::Unavailable);
}
