//! Switches that report the states of their ports, and their maps of queues, over gNMI alone.

use std::collections::BTreeMap;

use controller::{ControllerHandle, RawConfig, StateEvent};
use switch::{DeviceIndex, MarkingRamp, QueueLimits, WireEnd, WireIndex, WireSpec, WireState};
use switch_server::gnmi::{GnmiHandle, GnmiOptions, QosMaps, SchedulerType, serve};
use switch_server::p4runtime::ServiceOptions;
use tokio::net::TcpListener;
use topology::clos::{self, ClosSpec};
use topology::{Fabric, FabricNode, Finding, LinkId, Severity, SwitchId};

use crate::failures::{desired, rows};
use crate::http::ask;
use crate::lab::{DEADLINE, Lab, open_config, parts, until, verified};

/// A lab whose switches have wires between them and gNMI servers.
struct GnmiLab {
    lab: Lab,
    wires: BTreeMap<LinkId, WireIndex>,
    servers: Vec<GnmiHandle>,
}

impl GnmiLab {
    /// The first leaf reports these maps of queues.
    async fn new(first_maps: QosMaps) -> Self {
        Self::with_names(first_maps, |_| None).await
    }

    /// Neighbours know a switch by the name that `lldp_name` makes of its own, if it makes one.
    async fn with_names(first_maps: QosMaps, lldp_name: impl Fn(&str) -> Option<String>) -> Self {
        let fabric = Fabric::new(parts());
        let mut wires = BTreeMap::new();
        let mut devices: Vec<DeviceIndex> = Vec::new();
        let mut lab = Lab::wired(
            |_| ServiceOptions::default(),
            |builder, added| {
                devices = added.to_vec();
                for (switch, device) in fabric.switches().iter().zip(added) {
                    if let Some(name) = lldp_name(&switch.name) {
                        builder.name_device(*device, &name);
                    }
                }
                let queue = QueueLimits::of_bytes(1 << 20);
                let spec = WireSpec { bits_per_second: 1_000_000_000, delay_ns: 0, queue };
                for cable in fabric.cables() {
                    let end = |link: LinkId| {
                        let end = fabric.link(link).to;
                        let port = u16::try_from(end.port).unwrap();
                        match end.node {
                            FabricNode::Switch(switch) => {
                                Some(WireEnd::Device(added[switch.0 as usize], port))
                            }
                            FabricNode::Host(_) => None,
                        }
                    };
                    if let (Some(near), Some(far)) = (end(cable.reverse()), end(cable)) {
                        wires.insert(cable, builder.connect_wire(near, far, spec).unwrap());
                    }
                }
            },
        )
        .await;
        let first = |switch| if switch == 0 { first_maps.clone() } else { QosMaps::default() };
        let servers = serve_gnmi(&mut lab, &devices, first).await;
        Self { lab, wires, servers }
    }

    async fn set_wire(&self, cable: LinkId, state: WireState) {
        let wire = self.wires[&cable];
        self.lab.switches.devices.set_wire_state(wire, state).await.unwrap();
    }
}

/// Gives each switch of a lab a gNMI server that reports these maps of queues.
pub(crate) async fn serve_gnmi(
    lab: &mut Lab,
    devices: &[DeviceIndex],
    maps: impl Fn(usize) -> QosMaps,
) -> Vec<GnmiHandle> {
    let mut parts = lab.fabric.parts().clone();
    let mut servers = Vec::new();
    for (place, (switch, device)) in parts.switches.iter_mut().zip(devices).enumerate() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        switch.gnmi = Some(listener.local_addr().unwrap().to_string());
        let options = GnmiOptions { qos: maps(place), ..GnmiOptions::default() };
        let device = lab.switches.devices.device(*device);
        servers.push(serve(listener, device, options).await.unwrap());
    }
    lab.fabric = Fabric::new(parts);
    servers
}

fn without_hold_down(raw: &mut RawConfig) {
    raw.liveness.hold_down_ms = 1;
    raw.liveness.hold_down_longest_ms = 1;
}

/// Waits until the texts of the standing findings are as `what` demands.
async fn findings(controller: &ControllerHandle, what: impl Fn(&[String]) -> bool) {
    until(async || {
        let found = controller.standing_findings().list_findings();
        let texts = found.iter().map(|finding| format!("{}: {}", finding.about, finding.text));
        what(&texts.collect::<Vec<_>>())
    })
    .await;
}

#[tokio::test]
async fn a_port_that_goes_down_is_repaired_and_comes_back() {
    let gnmi = GnmiLab::new(QosMaps::default()).await;
    let controller = gnmi.lab.control(without_hold_down).await;
    let jobs = vec![gnmi.lab.job("a", 50_000), gnmi.lab.job("b", 50_001)];
    controller.submit_event(StateEvent::JobsChanged(jobs)).await.unwrap();
    verified(&gnmi.lab, &controller).await;

    let uplink = gnmi.lab.fabric.up_links(SwitchId(0))[0];
    let cable = uplink.min(uplink.reverse());
    for (state, down) in [(WireState::Down, 1), (WireState::Up, 0)] {
        gnmi.set_wire(cable, state).await;
        desired(&controller, |controller| {
            rows(controller, SwitchId(0), p4::fabric::table::PORT_DOWN) == down
        })
        .await;
        verified(&gnmi.lab, &controller).await;
    }
    controller.shutdown().await;
}

#[tokio::test]
async fn wrong_maps_of_queues_are_findings() {
    let mut maps = QosMaps::default();
    maps.dscp_to_class[40] = 2;
    maps.schedulers[3] = SchedulerType::Weighted;
    let gnmi = GnmiLab::new(maps).await;
    let controller = gnmi.lab.control(|_| {}).await;
    let first = gnmi.lab.fabric.switches()[0].name.clone();
    findings(&controller, |texts| {
        let expected = [
            format!("{first}: queue 3 is not served strictly, level 3 expects that"),
            format!("{first}: DSCP 40 maps to queue 2, level 5 expects queue 5; set "),
        ];
        texts.len() == 2 && expected.iter().zip(texts).all(|(start, text)| text.starts_with(start))
    })
    .await;
    controller.shutdown().await;
}

/// What is wrong with the maps of a switch, and how the only finding about it begins.
type WrongMap = (fn(&mut QosMaps, usize), usize, String);

/// Twenty wrong maps: of a DSCP to a class, of a class to a queue, and of how a queue is served.
fn wrong_maps() -> Vec<WrongMap> {
    let wrong_dscp = (0..8_usize).map(|level| -> WrongMap {
        let queue = (level + 3) % 8;
        let text = format!(
            "DSCP {} maps to queue {queue}, level {level} expects queue {level}; set ",
            8 * level
        );
        (|maps, level| maps.dscp_to_class[8 * level] = (level as u8 + 3) % 8, level, text)
    });
    let wrong_class = (0..7_usize).map(|class| -> WrongMap {
        let queue = class + 1;
        let text = format!(
            "DSCP {} maps to queue {queue}, level {class} expects queue {class}; set ",
            8 * class
        );
        (|maps, class| maps.class_to_queue[class] = class as u8 + 1, class, text)
    });
    let weighted = [0, 3, 7].map(|queue| -> WrongMap {
        let text = format!("queue {queue} is not served strictly, level {queue} expects that; ");
        (|maps, queue| maps.schedulers[queue] = SchedulerType::Weighted, queue, text)
    });
    let answers: [WrongMap; 2] = [
        (
            |maps, class| maps.class_to_queue[class] = 0,
            7,
            "DSCP 56 and 57 map to queue 0, level 7 expects queue 7; set ".to_owned(),
        ),
        (
            |maps, dscp| maps.dscp_to_class[dscp] = 1,
            57,
            "DSCP 57 maps to queue 1, level 7 expects queue 7; set ".to_owned(),
        ),
    ];
    wrong_dscp.chain(wrong_class).chain(weighted).chain(answers).collect()
}

/// Twenty leaves, each with another fault; the spine has none.
#[tokio::test(flavor = "multi_thread")]
async fn each_of_twenty_wrong_maps_is_named() {
    let wrong = wrong_maps();
    assert_eq!(wrong.len(), 20);
    let spec = ClosSpec { leaves: 20, spines: 1, hosts_per_leaf: 1, ..ClosSpec::default() };
    let parts = clos::build_clos("maps", &spec).unwrap().parts().clone();
    let mut devices = Vec::new();
    let mut lab =
        Lab::of_parts(parts, |_| ServiceOptions::default(), |_, added| devices = added.to_vec())
            .await;
    let maps = |switch: usize| {
        let mut maps = QosMaps::default();
        if let Some((break_map, place, _)) = wrong.get(switch) {
            break_map(&mut maps, *place);
        }
        maps
    };
    let _servers = serve_gnmi(&mut lab, &devices, maps).await;
    let names: Vec<_> = lab.fabric.switches().iter().map(|switch| switch.name.clone()).collect();
    let served = lab.served(&open_config()).await;
    findings(&served.controller, |texts| texts.len() >= 20).await;
    let (_, body) = ask(served.at, "/v1/findings", None).await;
    let found: Vec<Finding> = serde_json::from_str(&body).unwrap();
    let errors = || found.iter().filter(|finding| finding.severity == Severity::Error);
    for ((_, _, text), name) in wrong.iter().zip(&names) {
        let of_leaf: Vec<_> = errors().filter(|finding| finding.about == *name).collect();
        assert!(of_leaf.len() == 1 && of_leaf[0].text.starts_with(text), "{text}: {of_leaf:?}");
    }
    assert_eq!(errors().count(), 20, "{found:?}");
    served.end().await;
}

/// LLDP without a fault says nothing; two spines whose cables are exchanged are told, cable by
/// cable.
#[tokio::test]
async fn cables_that_lead_elsewhere_by_lldp_are_findings() {
    let right = GnmiLab::with_names(QosMaps::default(), |name| Some(name.to_owned())).await;
    let controller = right.lab.control(|raw| raw.gnmi.queue_check_ms = 50).await;
    verified(&right.lab, &controller).await;
    tokio::time::sleep(std::time::Duration::from_millis(200)).await;
    findings(&controller, <[String]>::is_empty).await;
    controller.shutdown().await;

    let exchange = |name: &str| match name {
        "spine1" => Some("spine2".to_owned()),
        "spine2" => Some("spine1".to_owned()),
        _ => None,
    };
    let exchanged = GnmiLab::with_names(QosMaps::default(), exchange).await;
    let controller = exchanged.lab.control(|raw| raw.gnmi.queue_check_ms = 50).await;
    findings(&controller, |texts| {
        !texts.is_empty()
            && texts.iter().all(|text| {
                text.contains(": crossed: the document connects leaf") && text.ends_with("(LLDP)")
            })
    })
    .await;
    controller.shutdown().await;
}

/// The first switch marks by other thresholds than those exported and has no PFC on level 1, which
/// the fabric has lossless; its counters of queues come in.
#[tokio::test]
async fn settings_of_queues_are_compared_and_counters_are_read() {
    let marking = MarkingRamp { kmin_bytes: 1_000, kmax_bytes: 2_000, pmax: 0.5 };
    let maps = QosMaps { marking: Some(marking), lossless: 0b0000_0001, ..QosMaps::default() };
    let mut gnmi = GnmiLab::new(maps).await;
    let mut parts = gnmi.lab.fabric.parts().clone();
    for switch in &mut parts.switches {
        switch.queues.levels = Some(2);
        switch.queues.lossless_levels = Some(2);
    }
    gnmi.lab.fabric = Fabric::new(parts);
    let controller = gnmi.lab.control(|raw| raw.gnmi.counter_ms = 5).await;
    let first = gnmi.lab.fabric.switches()[0].name.clone();
    findings(&controller, |texts| {
        let expected = [
            format!("{first}: PFC of priority 1 is off at ports "),
            format!("{first}: queues of ports "),
        ];
        texts.len() >= 2
            && expected.iter().all(|start| texts.iter().any(|text| text.starts_with(start)))
            && texts.iter().all(|text| text.starts_with(&format!("{first}: ")))
    })
    .await;
    let mut counters = controller.watch_port_counters();
    let seen = counters.wait_for(|all| all.len() == gnmi.lab.fabric.switches().len());
    let seen = tokio::time::timeout(DEADLINE, seen).await.unwrap().unwrap().clone();
    // Ports to hosts have no wire here.
    let level = seen[&SwitchId(0)].queues.values().next().unwrap();
    assert_eq!((level.marked, level.dropped, level.pauses_sent), (Some(0), Some(0), Some(0)));
    controller.shutdown().await;
}

#[tokio::test]
async fn a_switch_that_does_not_answer_is_a_finding_until_it_does() {
    let mut gnmi = GnmiLab::new(QosMaps::default()).await;
    let controller = gnmi.lab.control(|_| {}).await;
    let first = gnmi.lab.fabric.switches()[0].name.clone();
    let server = gnmi.servers.remove(0);
    let address = server.local_addr();
    server.shutdown().await;
    findings(&controller, |texts| {
        texts.len() == 1 && texts[0].starts_with(&format!("{first}: no port states over gNMI"))
    })
    .await;
    let listener = TcpListener::bind(address).await.unwrap();
    let device = gnmi.lab.switches.devices.device(DeviceIndex(0));
    let _server = serve(listener, device, GnmiOptions::default()).await.unwrap();
    findings(&controller, <[String]>::is_empty).await;
    controller.shutdown().await;
}
