//! A day of an operator under traffic: every statement of the controller, by event, finding,
//! preview, list and report, is compared with what the wires carry.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use api::telemetry as proto;
use controller::northbound::ApiServer;
use controller::{Config, ControllerHandle, RawConfig, StateEvent};
use proto::job_report::Report;
use serde_json::{Value, json};
use switch_server::p4runtime::ServiceOptions;
use topology::clos::{self, ClosSpec};
use topology::spec::{FabricDocument, explicit_document};
use topology::{AvailabilityChange, Fabric, LinkId};

use crate::http::ask;
use crate::lab::{eventually, serve_controller, until};
use crate::live_fabric::{all_hold, file, paths, without};
use crate::telemetry::ReportStream;
use crate::traffic::Busy;

/// Packets of each flow in which a link that is in use carries some.
const SEEN: u64 = 60;

/// A controller with four jobs on four leaves and three spines, under traffic.
struct Day {
    busy: Busy,
    controller: ControllerHandle,
    server: ApiServer,
    at: SocketAddr,
    /// Events that were read.
    read: usize,
}

fn counting(raw: &mut RawConfig) {
    raw.counters.enabled = true;
    raw.counters.interval_ms = 50;
    raw.deadlines.quiet_ms = 300;
    raw.northbound.anyone = true;
    raw.northbound.requests_per_second = 1_000_000;
}

impl Day {
    async fn begin() -> Self {
        let spec = ClosSpec { leaves: 4, spines: 3, hosts_per_leaf: 2, ..ClosSpec::default() };
        let parts = clos::build_clos("lab", &spec).unwrap().parts().clone();
        let busy = Busy::of_parts(parts, |_| ServiceOptions::default()).await;
        let controller = busy.lab.control(counting).await;
        controller.submit_event(busy.jobs(4)).await.unwrap();
        let mut raw = RawConfig::default();
        counting(&mut raw);
        let server = serve_controller(&controller, &Config::try_from(raw).unwrap()).await;
        let at = server.local_addr();
        let day = Self { busy, controller, server, at, read: 0 };
        all_hold(&day.controller).await;
        day.busy.send().await;
        day.busy.arrive(20).await;
        day.is_clean().await;
        day
    }

    async fn get(&self, path: &str) -> Value {
        let (status, text) = ask(self.at, path, None).await;
        assert_eq!(status, 200, "{path}: {text}");
        serde_json::from_str(&text).unwrap()
    }

    /// The answer to a request; its status is this one.
    async fn post(&self, path: &str, status: u16, body: Value) -> Value {
        let (had, text) = ask(self.at, path, Some(&body.to_string())).await;
        assert_eq!(had, status, "{path}: {text}");
        serde_json::from_str(&text).unwrap()
    }

    /// What doctor prints, but that everybody may come in here.
    async fn findings(&self) -> Vec<String> {
        let findings = self.get("/v1/findings").await;
        let text = |finding: &Value| {
            format!("{}: {}", finding["about"].as_str().unwrap(), finding["text"].as_str().unwrap())
        };
        let findings = findings.as_array().unwrap().iter();
        findings.filter(|finding| finding["about"] != "northbound").map(text).collect()
    }

    async fn finding(&self, what: &str) {
        let mut findings = Vec::new();
        let found = until(async || {
            findings = self.findings().await;
            findings.iter().any(|finding| finding.contains(what))
        });
        let found = tokio::time::timeout(Duration::from_secs(20), found).await;
        assert!(found.is_ok(), "{what}: {:?}", self.findings().await);
    }

    async fn is_clean(&self) {
        let clean = until(async || self.findings().await.is_empty());
        let clean = tokio::time::timeout(Duration::from_secs(20), clean).await;
        assert!(clean.is_ok(), "{:?}", self.findings().await);
    }

    /// Waits for an event of this kind that was not read yet, and reads all before it.
    async fn event(&mut self, kind: &str) -> Value {
        let read = self.read;
        let (place, event) = eventually(async || {
            let page = self.get("/v1/events").await;
            let events = page["events"].as_array().unwrap();
            let place = (read..events.len()).find(|place| events[*place]["kind"] == kind)?;
            Some((place, events[place].clone()))
        })
        .await;
        self.read = place + 1;
        event
    }

    async fn edit(&self, path: &str, status: u16, (action, part): (&str, &str)) -> Value {
        let change = json!({ "edits": [{ "action": action, "name": part }] });
        let request = match path {
            "/v1/policy/preview" => change,
            _ => json!({ "change": change, "author": "ada" }),
        };
        self.post(path, status, request).await
    }

    fn fabric(&self) -> Fabric {
        self.controller.current_rollout().unwrap().fabric
    }

    /// What goes over the cables of a switch while some packets of each flow arrive.
    async fn carried_by(&self, switch: &str) -> u64 {
        let fabric = &self.busy.lab.fabric;
        let switch = fabric.switch(fabric.switch_named(switch).unwrap());
        let cables: Vec<LinkId> = switch.ports.values().copied().collect();
        let before = self.busy.carried(&cables).await;
        self.busy.arrive(SEEN).await;
        self.busy.carried(&cables).await - before
    }

    async fn levels(&self) -> BTreeMap<String, u64> {
        let jobs = self.get("/v1/jobs").await;
        let level =
            |job: &Value| (job["id"].as_str().unwrap().to_owned(), job["level"].as_u64().unwrap());
        jobs.as_array().unwrap().iter().map(level).collect()
    }

    /// Planned flows take the links that the controller names, and only those.
    async fn paths_are_true(&self) {
        let fabric = &self.busy.lab.fabric;
        let planned = paths(&self.controller);
        for (port, path) in &planned {
            for link in path {
                let link = fabric.link_named(link).unwrap();
                let before = self.busy.carried(&[link]).await;
                self.busy.arrive(SEEN / 3).await;
                assert!(self.busy.carried(&[link]).await > before, "{port}: {path:?}");
            }
        }
    }

    /// A spine is drained, replaced and used again.
    async fn a_spine_is_replaced(&mut self) {
        let spine = paths(&self.controller)[&50_000][1].split('>').nth(1).unwrap().to_owned();
        let spine = spine.split(':').next().unwrap();
        assert!(self.carried_by(spine).await > 0);
        let before = paths(&self.controller);
        let preview = self.edit("/v1/policy/preview", 200, ("drain", spine)).await;
        self.edit("/v1/policy/apply", 200, ("drain", spine)).await;
        let event = self.event("drain_completed").await;
        assert_eq!((&event["parts"], &event["counted"]), (&json!([spine]), &json!(true)));
        assert_eq!(self.carried_by(spine).await, 0, "{event}");
        all_hold(&self.controller).await;
        let after = paths(&self.controller);
        let moved = after.iter().filter(|(port, path)| before[port] != **path).count();
        assert_eq!(preview["flows"].as_array().unwrap().len(), moved, "{preview}");
        self.is_clean().await;
        // It may be switched off now, and a fabric without it is no other plan.
        let whole = explicit_document(&self.busy.lab.fabric);
        self.apply_fabric(&without(&self.busy.lab.fabric, &[spine])).await;
        assert_eq!(paths(&self.controller), after);
        self.apply_fabric(&whole).await;
        self.is_clean().await;
        until(async || self.carried_by(spine).await > 0).await;
    }

    /// A cable fails: nothing is sent there, until it is back.
    async fn a_cable_fails_and_heals(&mut self) {
        let before = paths(&self.controller);
        let cable = self.busy.lab.fabric.link_named(&before[&50_000][1]).unwrap();
        self.controller
            .submit_event(StateEvent::FabricChanged(vec![AvailabilityChange::LinkDown(cable)]))
            .await
            .unwrap();
        all_hold(&self.controller).await;
        self.busy.arrive(20).await;
        let carried = self.busy.carried(&[cable]).await;
        self.paths_are_true().await;
        assert_eq!(self.busy.carried(&[cable]).await, carried);
        let around = paths(&self.controller);
        let is_around = |path: &Vec<String>| !path.contains(&before[&50_000][1]);
        assert!(around.values().all(is_around), "{around:?}");
        self.controller
            .submit_event(StateEvent::FabricChanged(vec![AvailabilityChange::LinkUp(cable)]))
            .await
            .unwrap();
        all_hold(&self.controller).await;
        self.is_clean().await;
        self.paths_are_true().await;
    }

    /// The last path is not drained unless that is wanted, and nobody says that it is.
    async fn a_last_path_is_not_drained(&mut self) {
        self.edit("/v1/policy/apply", 200, ("drain", "spine1")).await;
        self.edit("/v1/policy/apply", 200, ("drain", "spine2")).await;
        self.event("drain_completed").await;
        let refused = self.edit("/v1/policy/apply", 422, ("drain", "spine3")).await;
        assert!(refused.to_string().contains("without another path"), "{refused}");
        let forced = json!({
            "change": { "edits": [{ "action": "drain", "name": "spine3" }] },
            "author": "ada", "force": true,
        });
        self.post("/v1/policy/apply", 200, forced).await;
        self.finding("drained and still in use, as the last path").await;
        assert!(self.carried_by("spine3").await > 0);
        let page = self.get("/v1/events").await;
        let is_reported = |event: &Value| event["parts"].to_string().contains("spine3");
        assert!(!page["events"].as_array().unwrap().iter().any(is_reported), "{page}");
        for spine in ["spine3", "spine2", "spine1"] {
            self.edit("/v1/policy/apply", 200, ("undrain", spine)).await;
        }
        self.is_clean().await;
        until(async || self.carried_by("spine1").await > 0).await;
    }

    /// What is temporary ends, and leaves nothing behind.
    async fn an_override_and_a_trial_end(&mut self) {
        let before = self.levels().await;
        let lowered = json!({
            "change": { "temporary_override": {
                "rule": { "match": "job50000", "level": 0 }, "duration_seconds": 2,
            } },
            "author": "ada",
        });
        self.post("/v1/policy/apply", 200, lowered).await;
        assert_eq!(self.levels().await["job50000"], 0);
        let explained = self.get("/v1/explanations/job50000").await;
        assert_eq!(explained["override_pattern"], "job50000");
        until(async || self.levels().await == before).await;
        let explained = self.get("/v1/explanations/job50000").await;
        assert!(explained["override_pattern"].is_null());

        let trial = json!({
            "change": { "edits": [{ "action": "set", "name": "levels", "value": "2" }] },
            "author": "ada", "confirm_within_seconds": 1,
        });
        let applied = self.post("/v1/policy/apply", 200, trial).await;
        let expired = self.event("policy_expired").await;
        assert_eq!(expired["expired"], applied["revision"]);
        until(async || self.levels().await == before).await;
        self.is_clean().await;
    }

    /// A leaf goes and comes, and no other flow moves.
    async fn a_leaf_goes_and_comes(&mut self) {
        let before = paths(&self.controller);
        let whole = explicit_document(&self.busy.lab.fabric);
        let small = without(&self.busy.lab.fabric, &["leaf4", "h7", "h8"]);
        let request = json!({ "fabric": file(&small) });
        let preview = self.post("/v1/fabric/preview", 200, request).await;
        assert_eq!(preview["flows"], json!([]), "{preview}");
        for document in [&small, &whole] {
            self.apply_fabric(document).await;
            assert_eq!(paths(&self.controller), before);
        }
        let event = self.event("fabric_applied").await;
        assert!(event["changes"].to_string().contains("switch leaf4 is removed"), "{event}");
        self.is_clean().await;
    }

    /// Who reports what cannot be is named and harms nobody.
    async fn a_liar_is_named(&mut self) {
        let before = self.levels().await;
        let liar = ReportStream::open(&self.server).await;
        let flow = proto::JobFlow {
            src: "h5".to_owned(),
            dst: "h7".to_owned(),
            udp_src_port: Some(51_000),
            ..proto::JobFlow::default()
        };
        let announcement = proto::JobAnnouncement {
            job: "liar".to_owned(),
            gpus: [("h5".to_owned(), 1), ("h7".to_owned(), 1)].into(),
            flows: vec![flow],
            ..proto::JobAnnouncement::default()
        };
        liar.send(Report::Announcement(announcement)).await;
        for _ in 0..3 {
            liar.send(crate::telemetry::window("liar", 1e30)).await;
        }
        self.finding("job liar: its reports are not believed").await;
        until(async || {
            let levels = self.levels().await;
            levels.get("liar") == Some(&0)
                && before.iter().all(|(job, level)| levels[job] >= *level)
        })
        .await;
        liar.send(Report::End(proto::JobEnd { job: "liar".to_owned() })).await;
        until(async || self.levels().await == before).await;
        self.is_clean().await;
    }

    /// Lists and the report say what was counted.
    async fn what_is_measured_is_true(&mut self) {
        let rows = self.get("/v1/links").await;
        let fabric = self.fabric();
        for row in rows.as_array().unwrap() {
            let link = fabric.link_named(row["link"].as_str().unwrap()).unwrap();
            if fabric.link(link).from.node.switch().is_none() {
                continue;
            }
            let has_job = !row["jobs"].as_array().unwrap().is_empty();
            let measured = || async {
                let rows = self.get("/v1/links").await;
                let mut rows = rows.as_array().unwrap().clone().into_iter();
                let row = rows.find(|other| other["link"] == row["link"]).unwrap();
                row["measured"].as_f64().unwrap_or(0.0)
            };
            if has_job {
                until(async || measured().await > 0.0).await;
            }
        }
        let report = self.get("/v1/utilization").await;
        assert!(report["total"].is_object(), "{report}");
    }

    async fn apply_fabric(&self, document: &FabricDocument) {
        let request = json!({ "fabric": file(document), "author": "ada" });
        self.post("/v1/fabric/apply", 200, request).await;
        all_hold(&self.controller).await;
        self.busy.arrive(20).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_statement_of_a_day_is_what_counters_say() {
    let mut day = Day::begin().await;
    day.paths_are_true().await;
    day.a_spine_is_replaced().await;
    day.a_cable_fails_and_heals().await;
    day.a_last_path_is_not_drained().await;
    day.an_override_and_a_trial_end().await;
    day.a_leaf_goes_and_comes().await;
    day.a_liar_is_named().await;
    day.what_is_measured_is_true().await;
    day.paths_are_true().await;
    day.busy.settle().await;
    day.server.shutdown().await;
    day.controller.shutdown().await;
}
