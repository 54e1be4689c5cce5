//! Events of a run on the embedded fabric: policies applied and cables failing at instants of the
//! virtual clock.
//!
//! [`rehearse`](super::rehearse) advances the clock to each of them. The decision: the clock is
//! stopped while the controller responds, so its response takes no virtual time; the hold-down
//! before a recovered cable is used passes on both clocks.

use std::time::Duration;

use controller::liveness::{FabricPart, PartHealth};
use controller::northbound::service::NorthboundService;
use controller::{Config, ControllerHandle};
use planner::PolicyDocument;
use serde::Deserialize;
use switch::WireState;
use tokio::time::{Instant, sleep};
use topology::{Fabric, LinkId};

use crate::demo::{ServedTestbed, change_to, put_in_force};
use command_io::CommandError;
use command_io::files;

/// The interval of checks.
const POLL_INTERVAL: Duration = Duration::from_millis(10);
/// The deadline for the controller to use or stop using a cable.
const VERIFY_TIMEOUT: Duration = Duration::from_secs(60);

/// A document with the events of a run.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct EventsDocument {
    #[serde(default)]
    event: Vec<ScriptedEvent>,
}

/// An event; exactly one of the fields after the name is given.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ScriptedEvent {
    /// Seconds after the jobs began.
    pub(crate) after_seconds: f64,
    pub(crate) name: String,
    /// The policy to apply.
    policy: Option<PolicyDocument>,
    /// The cable that fails, as `leaf1-spine1`.
    link_down: Option<String>,
    /// The cable that recovers.
    link_up: Option<String>,
}

/// The effect of an event, with names resolved.
#[derive(Debug)]
pub(super) enum ScriptedEffect {
    Policy(Box<PolicyDocument>),
    Cables(Vec<LinkId>, WireState),
}

/// What an event asks for, where someone other than the embedded fabric does it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum EventAction {
    /// Put a policy in force.
    ApplyPolicy(Box<PolicyDocument>),
    /// Take cables down.
    CutCables(Vec<LinkId>),
    /// Take cables up again.
    RestoreCables(Vec<LinkId>),
}

/// Reads events, in the order of their times.
pub(super) fn read_events(
    file: &str,
    fabric: &Fabric,
) -> Result<Vec<(ScriptedEvent, ScriptedEffect)>, CommandError> {
    let document: EventsDocument = files::parse_document(file)?;
    resolve_events(file, document.event, fabric)
}

/// Events with their effects, in the order of their times; `file` is their document in errors.
pub(super) fn resolve_events(
    file: &str,
    mut events: Vec<ScriptedEvent>,
    fabric: &Fabric,
) -> Result<Vec<(ScriptedEvent, ScriptedEffect)>, CommandError> {
    events.sort_by(|a, b| a.after_seconds.total_cmp(&b.after_seconds));
    let whats = events.into_iter().map(|event| {
        let what = event.resolve_effect(fabric);
        what.map_err(|why| CommandError::input(file, format_args!("event {:?}: {why}", event.name)))
            .map(|what| (event, what))
    });
    whats.collect()
}

impl ScriptedEvent {
    /// The event at another instant.
    pub(crate) fn rescheduled_to(self, after_seconds: f64) -> Self {
        Self { after_seconds, ..self }
    }

    /// What the event asks for; `file` is its document in errors.
    ///
    /// # Errors
    /// Its time or what it names is wrong.
    pub(crate) fn resolve_action(
        &self,
        file: &str,
        fabric: &Fabric,
    ) -> Result<EventAction, CommandError> {
        let effect = self.resolve_effect(fabric);
        let effect = effect.map_err(|why| {
            CommandError::input(file, format_args!("event {:?}: {why}", self.name))
        })?;
        Ok(match effect {
            ScriptedEffect::Policy(policy) => EventAction::ApplyPolicy(policy),
            ScriptedEffect::Cables(links, WireState::Down) => EventAction::CutCables(links),
            ScriptedEffect::Cables(links, WireState::Up) => EventAction::RestoreCables(links),
        })
    }

    fn resolve_effect(&self, fabric: &Fabric) -> Result<ScriptedEffect, String> {
        if !(0.0..1e9).contains(&self.after_seconds) {
            return Err("after_seconds: from 0 to a thousand million".to_owned());
        }
        match (&self.policy, &self.link_down, &self.link_up) {
            (Some(policy), None, None) => Ok(ScriptedEffect::Policy(Box::new(policy.clone()))),
            (None, Some(name), None) => cable_effect(fabric, name, WireState::Down),
            (None, None, Some(name)) => cable_effect(fabric, name, WireState::Up),
            _ => Err("give one of policy, link_down and link_up".to_owned()),
        }
    }
}

/// The effect on the cables between two nodes, named as `leaf1-spine1`.
fn cable_effect(fabric: &Fabric, name: &str, state: WireState) -> Result<ScriptedEffect, String> {
    match fabric.links_named(name) {
        none if none.is_empty() => {
            Err(format!("the fabric has no cable {name}; write it as leaf1-spine1"))
        }
        links => Ok(ScriptedEffect::Cables(links, state)),
    }
}

impl ScriptedEffect {
    /// Applies the effect; returns when the switches hold the plan for it. The clock of the fabric
    /// stands still meanwhile, so that the rest of the run is the same on every machine.
    pub(super) async fn apply_effect(
        &self,
        stage: &ServedTestbed<'_>,
        controller: &ControllerHandle,
    ) -> Result<(), CommandError> {
        match self {
            Self::Policy(policy) => {
                let service =
                    NorthboundService::new(controller.access().clone(), &Config::default());
                let now = service.get_policy().await.map_err(CommandError::document)?;
                let wish = change_to(policy, &now.content.policy.drained)?;
                put_in_force(&service, wish, "crux job rehearse").await?;
                stage.await_compared_plan(controller).await
            }
            Self::Cables(links, state) => {
                for link in links {
                    set_cable(*link, *state, stage, controller).await?;
                }
                if *state == WireState::Up {
                    let hold_down = Config::default().liveness.hold_down.wait_after(1);
                    stage.advance_by(hold_down).await?;
                }
                for link in links {
                    await_usable(controller, *link, *state == WireState::Up).await?;
                }
                stage.await_compared_plan(controller).await
            }
        }
    }
}

/// Fails or repairs a cable, and reports that to the controller as a carrier event would.
async fn set_cable(
    link: LinkId,
    state: WireState,
    stage: &ServedTestbed<'_>,
    controller: &ControllerHandle,
) -> Result<(), CommandError> {
    let testbed = stage.testbed();
    testbed
        .network_handle()
        .set_wire_state(testbed.cable_wire(link), state)
        .await
        .map_err(CommandError::failed)?;
    let seen = match state {
        WireState::Down => PartHealth::Down,
        WireState::Up => PartHealth::Up,
    };
    controller.report_health(FabricPart::Cable(link), seen).await.map_err(CommandError::failed)
}

/// Waits until the controller uses a link on every switch, or none.
async fn await_usable(
    controller: &ControllerHandle,
    link: LinkId,
    used: bool,
) -> Result<(), CommandError> {
    let deadline = Instant::now() + VERIFY_TIMEOUT;
    while Instant::now() < deadline {
        let realised = controller.current_rollout();
        if let Some(realised) = realised.filter(|it| it.fabric.is_usable(link) == used) {
            let verified = controller.await_verified(realised.generation, VERIFY_TIMEOUT);
            return verified.await.map(drop).map_err(CommandError::failed);
        }
        sleep(POLL_INTERVAL).await;
    }
    let text = "the controller did not process the change of a cable in time";
    Err(CommandError::Failed(text.to_owned()))
}
