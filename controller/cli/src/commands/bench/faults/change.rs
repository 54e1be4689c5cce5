//! A policy that an operator applies while faults happen, and the verdict on how that ended.
//!
//! It begins where the schedule before it has ended well: with [`Trial`] calm. The decision: where
//! a change has come to is looked at once the faults are mended, nothing is on trial any more, and
//! all switches have stayed as they should be for a while. Until then a repair may be under way,
//! and then switches may differ from each other. What is in force is asked of the ledger alone; the
//! switches must hold just that, and the operator must have been told so.

use std::time::Duration;

use controller::ledger::{Content, Signature};
use controller::northbound::service::{Order, Service, Text, Wish};
use controller::{Access, Event, Proposal};
use planner::{OverrideDocument, Policy, PolicyDocument};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::mutant::Mutant;
use super::rig::lock;
use super::schedule::{Led, Step};
use super::trial::{CALM, LOOK, PATIENCE, Trial, config, job};

/// Jobs that run meanwhile; the last is the most intense.
const JOBS: u32 = 4;

/// The policy of before and the new one.
struct Change {
    old: Policy,
    new: Policy,
}

/// What the operator was told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Told {
    Applied,
    TakenBack,
    /// Nothing that says which: the controller has gone, or could not store it.
    Nothing,
}

impl Change {
    /// To another number of levels, and the most intense job in the lowest.
    fn from(old: &Policy) -> Result<Self, String> {
        let mut document = PolicyDocument::from(old);
        document.levels = old.levels % 8 + 1;
        document.jobs = vec![OverrideDocument {
            pattern: format!("job:{}", job(JOBS - 1).id),
            level: Some(0),
            ..OverrideDocument::default()
        }];
        let new = document.validate("change");
        Ok(Self {
            old: old.clone(),
            new: new.map_err(|error| error.to_string())?,
        })
    }

    fn order(&self) -> Result<Order, String> {
        let document = PolicyDocument::from(&self.new);
        let text = serde_json::to_string(&document).map_err(|error| error.to_string())?;
        let file = "change.json".to_owned();
        Ok(Order {
            wish: Wish {
                policy: Some(Text { file, text }),
                temporary: None,
            },
            who: "operator".to_owned(),
            ..Order::default()
        })
    }

    /// Which of the two this is.
    fn of(&self, content: &Content) -> Option<&Policy> {
        let mut both = [&self.old, &self.new].into_iter();
        both.find(|policy| Content::from(*policy) == *content)
    }
}

impl Trial {
    /// Applies a policy at the leader while `steps` happen, until all of that has lasted `until`.
    pub(super) async fn change(
        &mut self,
        steps: &[(u64, Step)],
        until: Duration,
    ) -> Result<(), String> {
        self.facts.jobs = (0..JOBS).map(job).collect();
        self.tell_jobs().await?;
        self.await_calm(&[]).await?;
        let change = Change::from(&self.facts.policy)?;
        let (asked, leader) = self.leader()?;
        let access = leader.access().clone();
        let verify = config(asked, 1, self.led)?;
        let applying = tokio::spawn(apply(
            access,
            Service::new(leader.access().clone(), &verify),
            change.order()?,
            (self.mutant, verify.verify),
        ));
        let begun = Instant::now();
        lock(&self.world).is_rough = true;
        let mut survives = true;
        for (at, step) in steps {
            sleep_until(begun + Duration::from_millis(*at)).await;
            survives &= *step != Step::Kill { controller: asked };
            self.step(*step).await?;
        }
        sleep_until(begun + until).await;
        self.heal().await?;
        let told = timeout(PATIENCE, applying).await;
        let told = told.map_err(|_| "the operator waits for an answer".to_owned())?;
        let told = told.map_err(|_| "applying panicked".to_owned())??;
        self.await_calm(&[&change]).await?;
        self.check_told(&change, told, asked, survives).await
    }

    /// Waits until everything is as it should be, under whichever policy of a change is in force,
    /// and looks whether it stays so. Calm begins anew with everything else that is desired: a
    /// cable may count as working again, or news come of the store.
    async fn await_calm(&mut self, changes: &[&Change]) -> Result<(), String> {
        let deadline = Instant::now() + PATIENCE;
        let mut calm: Option<(Instant, (u32, u64))> = None;
        loop {
            let whole = self.is_whole(changes).await;
            let leader = self.leader();
            let desired = leader.map(|(number, leader)| (number, leader.desired().generation));
            let desired = desired.unwrap_or_default();
            match (whole, calm) {
                (Ok(()), Some((since, what))) if what == desired => {
                    if Instant::now() >= since + CALM {
                        return Ok(());
                    }
                }
                (Ok(()), _) => calm = Some((Instant::now(), desired)),
                (Err(why), Some((_, what))) if what == desired => {
                    return Err(format!("it does not last: {why}"));
                }
                (Err(why), _) if Instant::now() >= deadline => return Err(why),
                (Err(_), _) => calm = None,
            }
            sleep(LOOK).await;
        }
    }

    /// Whether nothing is on trial, and all switches hold what follows from the policy in force.
    async fn is_whole(&mut self, changes: &[&Change]) -> Result<(), String> {
        let (number, _) = self.leader()?;
        if let Some(change) = changes.first() {
            self.facts.policy = self.in_force(change, number).await?;
        }
        self.is_as_it_should_be()?;
        let (_, leader) = self.leader()?;
        let realised = leader.realised().ok_or("nothing is planned")?;
        let last = job(JOBS - 1).id;
        let lowered = changes
            .first()
            .is_some_and(|change| self.facts.policy == change.new);
        match realised.plan.job(&last) {
            Some((_, planned)) if lowered && planned.level != 0 => {
                Err(format!("{last} has level {}", planned.level))
            }
            _ => Ok(()),
        }
    }

    /// The policy that a controller's ledger says is in force, for good.
    async fn in_force(&self, change: &Change, controller: u32) -> Result<Policy, String> {
        let controller = self.controllers.get(&controller).ok_or("it is gone")?;
        let latest = controller
            .look(|state| state.ledger().latest().clone())
            .await;
        let latest = latest.map_err(|error| error.to_string())?;
        if latest.trial.is_some() {
            return Err("an edition is on trial".to_owned());
        }
        let found = change.of(&latest.content).cloned();
        found.ok_or_else(|| "a policy is in force that is neither old nor new".to_owned())
    }

    /// What the operator was told is so. Where switches elect and nothing is stored, each
    /// controller has a policy of its own, which is gone with it.
    async fn check_told(
        &self,
        change: &Change,
        told: Told,
        asked: u32,
        survives: bool,
    ) -> Result<(), String> {
        let (leader, _) = self.leader()?;
        let in_force = match self.led {
            Led::ByEtcd => {
                let mut all = Vec::new();
                for number in self.controllers.keys() {
                    all.push(self.in_force(change, *number).await?);
                }
                if all.iter().any(|policy| *policy != all[0]) {
                    return Err("controllers differ in the policy in force".to_owned());
                }
                self.in_force(change, leader).await?
            }
            Led::BySwitches if survives => self.in_force(change, asked).await?,
            Led::BySwitches => return Ok(()),
        };
        match (told, in_force == change.new) {
            (Told::Applied, false) => Err("told to be applied, and the old is in force".to_owned()),
            (Told::TakenBack, true) => {
                Err("told to be taken back, and the new is in force".to_owned())
            }
            _ => Ok(()),
        }
    }
}

/// What an operator does, and is told.
async fn apply(
    access: Access,
    service: Service,
    order: Order,
    (mutant, verify): (Mutant, Duration),
) -> Result<Told, String> {
    if mutant == Mutant::StopsHalfWay {
        return stop_half_way(&access, &service, &order, verify).await;
    }
    Ok(match service.apply(&order).await {
        Ok(done) if done.applied => Told::Applied,
        Ok(_) => Told::TakenBack,
        Err(_) => Told::Nothing,
    })
}

/// The same, by a controller that forgets to take back what did not come to its end.
async fn stop_half_way(
    access: &Access,
    service: &Service,
    order: &Order,
    verify: Duration,
) -> Result<Told, String> {
    let Some(text) = &order.wish.policy else {
        return Ok(Told::Nothing);
    };
    let Ok(latest) = service.policy().await else {
        return Ok(Told::Nothing);
    };
    let policy: PolicyDocument =
        serde_json::from_str(&text.text).map_err(|error| error.to_string())?;
    let proposal = Proposal {
        content: Content {
            policy,
            ..latest.content
        },
        signature: Signature::default(),
        trial_until: None,
    };
    let proposed = access
        .submit(Event::PolicyProposed(Box::new(proposal)))
        .await;
    let Ok(receipt) = proposed else {
        return Ok(Told::Nothing);
    };
    Ok(
        match access.await_verified(receipt.generation, verify).await {
            Ok(_) => Told::Applied,
            Err(_) => Told::TakenBack,
        },
    )
}
