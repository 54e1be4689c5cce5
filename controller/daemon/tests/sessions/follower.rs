//! Two controllers without etcd, of which one follows the other: whatever happens, one writes at a
//! time, and the next one continues from what the last one had in force.

use std::collections::BTreeMap;

use controller::northbound::cluster::TakeLeadRequest;
use controller::northbound::service::NorthboundService;
use controller::northbound::{self, ApiServer};
use controller::southbound::SwitchStatus;
use controller::southbound::arbitration::Mastership;
use controller::southbound::write_permit::WritePermit;
use controller::{Controller, ControllerHandle, RawConfig, StateEvent};
use planner::{PlannedFlow, Policy};
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::time::timeout;

use crate::cluster::until;
use crate::http::ask;
use crate::lab::{DEADLINE, Lab, all_hold, config, open_config, verified, written};

/// A controller that others can follow.
struct ReplicatedController {
    controller: ControllerHandle,
    server: ApiServer,
}

/// An address that is free, and what listens there.
async fn listen() -> (String, TcpListener) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    (listener.local_addr().unwrap().to_string(), listener)
}

impl ReplicatedController {
    /// A controller with this number that follows whoever leads at `others`.
    async fn start(
        lab: &Lab,
        number: u32,
        others: &[&str],
        (listener, change): (TcpListener, impl FnOnce(&mut RawConfig)),
    ) -> Self {
        let config = config(|raw| {
            raw.election.controller = number;
            raw.follow.members = others.iter().map(ToString::to_string).collect();
            raw.election.grace_ms = 200;
            change(raw);
        });
        let started = Controller::start(config, lab.fabric.clone(), Policy::default()).await;
        let controller = started.unwrap();
        let access = controller.access();
        let server = northbound::start_server(listener, access, &open_config()).unwrap();
        Self { controller, server }
    }

    async fn leads(&self) {
        until(&self.controller, |permit| matches!(permit, WritePermit::Open { term: 1.. })).await;
    }

    /// Waits until it has the decisions of another one.
    async fn has_plan_of(&self, leader: &Self) {
        let wanted = leader.flows();
        let has = self.controller.await_rollout(|rollout| rollout.plan.flows == wanted);
        timeout(DEADLINE, has).await.unwrap().unwrap();
    }

    fn flows(&self) -> Vec<PlannedFlow> {
        self.controller.current_rollout().unwrap().plan.flows.clone()
    }

    fn service(&self) -> NorthboundService {
        NorthboundService::new(self.controller.access().clone(), &open_config())
    }

    async fn submit_jobs(&self, lab: &Lab, jobs: u16) {
        let jobs = (0..jobs).map(|n| lab.job(&format!("job{n}"), 50_000 + n)).collect();
        let submitted = self.controller.submit_event(StateEvent::JobsChanged(jobs)).await;
        assert_eq!(submitted.unwrap().refusal, None);
    }

    /// Ends without a farewell.
    async fn die(self) {
        drop(self.controller);
        self.server.shutdown().await;
    }
}

fn request() -> TakeLeadRequest {
    TakeLeadRequest { author: "ada".to_owned(), ..TakeLeadRequest::default() }
}

/// A leader with two jobs and a policy, and a member that follows it and has everything.
async fn leader_and_follower(lab: &Lab) -> (ReplicatedController, ReplicatedController) {
    let ((first, first_listener), (second, second_listener)) = (listen().await, listen().await);
    let leader = ReplicatedController::start(lab, 1, &[&second], (first_listener, |_| {})).await;
    // The other member does not answer yet, so nobody knows whether it has a later state.
    leader.service().take_lead(&request()).await.unwrap();
    leader.leads().await;
    leader.submit_jobs(lab, 2).await;
    let policy = Policy { drained: vec!["spine1".into()], ..Policy::default() };
    leader.controller.submit_event(StateEvent::PolicyChanged(policy)).await.unwrap();
    verified(lab, &leader.controller).await;
    let follower = ReplicatedController::start(lab, 2, &[&first], (second_listener, |_| {})).await;
    follower.has_plan_of(&leader).await;
    follows(&follower, &leader).await;
    (leader, follower)
}

/// Waits until the leader knows that a follower has everything.
async fn follows(follower: &ReplicatedController, leader: &ReplicatedController) {
    let current = async {
        loop {
            let status = leader.service().get_cluster().await.unwrap();
            let number = follower.controller.access().controller_number();
            if status
                .followers
                .iter()
                .any(|one| one.controller == number && one.updates_behind == 0)
            {
                return;
            }
            tokio::task::yield_now().await;
        }
    };
    timeout(DEADLINE, current).await.unwrap();
}

/// Waits until a follower has everything of a leader that all switches have for their primary.
async fn leads_all(leader: &ReplicatedController, follower: &ReplicatedController) {
    follows(follower, leader).await;
    all_hold(&leader.controller).await;
}

#[tokio::test]
async fn of_two_new_members_one_leads_and_the_other_follows() {
    let lab = Lab::new().await;
    let ((first, first_listener), (second, second_listener)) = (listen().await, listen().await);
    let members = [
        ReplicatedController::start(&lab, 1, &[&second], (first_listener, |_| {})).await,
        ReplicatedController::start(&lab, 2, &[&first], (second_listener, |_| {})).await,
    ];
    // Both may bid, and the first to lead may lose: within a term the higher number wins.
    let [leader, follower] = tokio::select! {
        () = leads_all(&members[0], &members[1]) => [&members[0], &members[1]],
        () = leads_all(&members[1], &members[0]) => [&members[1], &members[0]],
    };
    leader.submit_jobs(&lab, 2).await;
    follower.has_plan_of(leader).await;
    assert_eq!(written(&follower.controller), 0);
}

#[tokio::test]
async fn a_follower_continues_from_the_plan_of_a_leader_that_died() {
    let lab = Lab::new().await;
    let (leader, follower) = leader_and_follower(&lab).await;
    let (flows, tables) = (leader.flows(), lab.read_all().await);
    let revisions = leader.service().get_policy().await.unwrap();
    assert_eq!(written(&follower.controller), 0);

    leader.die().await;
    follower.leads().await;
    all_hold(&follower.controller).await;
    assert_eq!(follower.flows(), flows);
    assert_eq!(written(&follower.controller), 0, "the tables are those of the leader");
    assert_eq!(lab.read_all().await, tables);
    assert_eq!(follower.service().get_policy().await.unwrap(), revisions);
    follower.submit_jobs(&lab, 3).await;
    verified(&lab, &follower.controller).await;
}

#[tokio::test]
async fn a_follower_refuses_changes_and_names_the_leader() {
    let lab = Lab::new().await;
    let (leader, follower) = leader_and_follower(&lab).await;
    let event = StateEvent::JobsChanged(vec![lab.job("another", 60_000)]);
    let refusal = follower.controller.submit_event(event).await.unwrap().refusal.unwrap();
    let address = leader.server.local_addr().to_string();
    assert!(refusal.text.contains("controller 1 leads at"), "{refusal}");
    assert!(refusal.text.contains(&address), "{refusal}");
}

#[tokio::test]
async fn a_leader_that_steps_down_follows_its_successor() {
    let lab = Lab::new().await;
    let (leader, follower) = leader_and_follower(&lab).await;
    let flows = leader.flows();
    leader.service().step_down(&request()).await.unwrap();
    follower.leads().await;
    all_hold(&follower.controller).await;
    assert_eq!((written(&follower.controller), follower.flows()), (0, flows));
    follower.submit_jobs(&lab, 4).await;
    verified(&lab, &follower.controller).await;
    leader.has_plan_of(&follower).await;
    let seen = leader.service().get_cluster().await.unwrap();
    assert_eq!((seen.leads, seen.leader), (false, Some(2)));
    let again = leader.service().step_down(&request()).await;
    assert!(again.unwrap_err().to_string().contains("does not lead"));
}

#[tokio::test]
async fn a_leader_that_ends_waits_until_its_follower_leads() {
    let lab = Lab::new().await;
    let (leader, follower) = leader_and_follower(&lab).await;
    let flows = leader.flows();
    assert!(!follower.controller.hand_over_lead(DEADLINE).await, "it does not lead");
    assert!(leader.controller.hand_over_lead(DEADLINE).await);
    leader.die().await;
    follower.leads().await;
    all_hold(&follower.controller).await;
    assert_eq!((written(&follower.controller), follower.flows()), (0, flows));
    let begun = std::time::Instant::now();
    assert!(!follower.controller.hand_over_lead(DEADLINE).await, "nobody is left");
    assert!(begun.elapsed() < DEADLINE);
}

#[tokio::test]
async fn a_leader_that_comes_back_follows_and_forgets_what_nobody_received() {
    let lab = Lab::new().await;
    let folder = TempDir::new().unwrap();
    let store = folder.path().join("crux.redb");
    let ((first, listener), (second, second_listener)) = (listen().await, listen().await);
    let stored = |raw: &mut RawConfig| raw.store.path = Some(store.clone());
    let leader = ReplicatedController::start(&lab, 1, &[&second], (listener, stored)).await;
    leader.service().take_lead(&request()).await.unwrap();
    leader.leads().await;
    leader.submit_jobs(&lab, 1).await;
    leader.die().await;

    // Nobody has told this one anything, so it leads only where an operator wants it.
    let newcomer = ReplicatedController::start(&lab, 2, &[&first], (second_listener, |_| {})).await;
    let vacant = |line: &SwitchStatus| matches!(line.mastership, Mastership::NoPrimary { .. });
    let all_vacant = |lines: &BTreeMap<_, SwitchStatus>| lines.values().all(vacant);
    timeout(DEADLINE, newcomer.controller.status_board().wait_until(all_vacant)).await.unwrap();
    tokio::time::sleep(std::time::Duration::from_millis(600)).await;
    assert!(all_vacant(&newcomer.controller.status_board().all_statuses()));
    let findings = async || ask(newcomer.server.local_addr(), "/v1/findings", None).await.1;
    assert!(findings().await.contains("nobody leads: 4 of 4 switches"));
    newcomer.service().take_lead(&request()).await.unwrap();
    newcomer.leads().await;
    assert!(!findings().await.contains("nobody leads"));
    newcomer.submit_jobs(&lab, 3).await;
    verified(&lab, &newcomer.controller).await;

    let (_, listener) = listen().await;
    let back = ReplicatedController::start(&lab, 1, &[&second], (listener, stored)).await;
    back.has_plan_of(&newcomer).await;
    assert_eq!(written(&back.controller), 0);
    newcomer.die().await;
    back.leads().await;
    all_hold(&back.controller).await;
    assert_eq!(back.controller.current_rollout().unwrap().plan.jobs.len(), 3);
}
