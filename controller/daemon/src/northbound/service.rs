//! Questions and commands of operators, and their answers: the one layer that every protocol
//! serves.
//!
//! What an answer says is made by pure functions ([`preview`](crate::preview),
//! [`ledger`](crate::ledger)) from what the state is asked for. The decision on changes of policy:
//! every one is a trial until all switches are seen to hold it. If they do not in time, if nobody
//! confirms a change that was to be confirmed, or if the controller dies meanwhile, the ledger ends
//! the trial by itself, so what is in force in the end is the old or the new, whole.

use std::sync::Arc;
use std::time::Duration;

use planner::{FieldError, OverrideDocument, PlanDocument, PolicyDocument};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use topology::document::{self, DocumentError, Format};
use topology::spec::{self, FabricDocument};
use topology::{Finding, one_line};

use super::answers::{JobRow, LinkRow, SwitchRow, View};
use super::explain::Explanation;
use super::metrics;
use super::situation::Situation;
use crate::config::Config;
use crate::ledger::{Content, Edition, Signature, Temporary, UnixMs};
use crate::preview::{Preview, preview};
use crate::runtime::{Access, ControllerError, Receipt};
use crate::state::{Event, Proposal, State};
use crate::telemetry::gauges::Measured;

/// How long a trial outlives the time that switches have to hold it, so that it does not end while
/// its end is being told.
const MARGIN: Duration = Duration::from_secs(5);

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum ServiceError {
    /// What was asked for makes no sense, or is refused; why.
    #[error("{}", one_line(.0))]
    Refused(Vec<Finding>),
    /// There is nothing of this name.
    #[error("{0}")]
    Unknown(String),
    /// The controller has no answer now.
    #[error(transparent)]
    Controller(#[from] ControllerError),
}

/// A change of policy, as an operator asks for it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Wish {
    /// The policy; without it, the one in force.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<Text>,
    /// An override for some time, before all others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub temporary: Option<Wanted>,
}

/// A policy document as it stands in a file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Text {
    /// Name of the file; its extension says the format, as `.toml`, `.yaml` or `.json`.
    pub file: String,
    /// What is in it.
    pub text: String,
}

/// An override for some time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Wanted {
    /// What it says.
    pub rule: OverrideDocument,
    /// For how long, seconds.
    pub seconds: u64,
}

/// A change of policy that is to be made.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Order {
    /// Which.
    pub wish: Wish,
    /// Who wants it.
    pub who: String,
    /// Why.
    #[serde(default)]
    pub why: String,
    /// Taken back after so many seconds unless it is confirmed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confirm_within: Option<u64>,
}

/// Who confirms or takes back, and why.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Say {
    /// Who.
    pub who: String,
    /// Why.
    #[serde(default)]
    pub why: String,
    /// To go back to this edition; without it, to what was in force before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub edition: Option<u64>,
}

/// What became of an order.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Done {
    /// The edition in force.
    pub edition: u64,
    /// Whether what was ordered is in force, and every switch holds it.
    pub applied: bool,
    /// When it ends unless it is confirmed, milliseconds of Unix time.
    pub trial_until_ms: Option<UnixMs>,
    /// What a person should know.
    pub findings: Vec<Finding>,
}

/// An edition, as history tells it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Chapter {
    /// The edition.
    pub edition: Edition,
    /// What it changed, field by field.
    pub changes: Vec<String>,
}

/// The service.
#[derive(Clone, Debug)]
pub struct Service {
    pub(super) access: Access,
    verify: Duration,
    /// What switches count, and where jobs say something else; nothing where nobody reads it.
    measured: Option<Counting>,
    /// Whose request this is, by their token.
    caller: Option<Arc<str>>,
}

/// What switches count, and where jobs say something else.
type Counting = (
    watch::Receiver<Arc<Measured>>,
    watch::Receiver<Vec<Finding>>,
);

impl Service {
    /// One that asks and tells `access`.
    pub fn new(access: Access, config: &Config) -> Self {
        let verify = config.verify;
        Self {
            access,
            verify,
            measured: None,
            caller: None,
        }
    }

    /// The same, for who is known by a token.
    #[must_use]
    pub(super) fn asked_by(&self, caller: Option<Arc<str>>) -> Self {
        Self {
            caller,
            ..self.clone()
        }
    }

    /// The same, which also tells what switches count and where jobs say something else.
    #[must_use]
    pub(crate) fn measuring(
        self,
        measured: watch::Receiver<Arc<Measured>>,
        disputes: watch::Receiver<Vec<Finding>>,
    ) -> Self {
        Self {
            measured: Some((measured, disputes)),
            ..self
        }
    }

    fn counting(&self) -> (Arc<Measured>, Vec<Finding>) {
        let counting = self.measured.as_ref();
        counting.map_or_else(Default::default, |(measured, disputes)| {
            (Arc::clone(&measured.borrow()), disputes.borrow().clone())
        })
    }

    /// What is known and decided now.
    ///
    /// # Errors
    /// The controller has stopped, or has no plan yet.
    pub async fn view(&self) -> Result<View, ServiceError> {
        let (question, told) = self.access.look(View::of).await?;
        let realised = self.access.realised().ok_or(ControllerError::Stopped)?;
        let (measured, disputes) = self.counting();
        Ok(View {
            question,
            told,
            realised,
            measured,
            disputes,
            drainage: self.access.drainage().borrow().clone(),
            lines: self.access.board().all(),
        })
    }

    /// The jobs in force, by rank.
    ///
    /// # Errors
    /// As for [`Service::view`], and so below.
    pub async fn jobs(&self) -> Result<Vec<JobRow>, ServiceError> {
        Ok(self.view().await?.jobs())
    }

    /// All switches.
    ///
    /// # Errors
    /// As above.
    pub async fn switches(&self) -> Result<Vec<SwitchRow>, ServiceError> {
        Ok(self.view().await?.switches())
    }

    /// All links.
    ///
    /// # Errors
    /// As above.
    pub async fn links(&self) -> Result<Vec<LinkRow>, ServiceError> {
        Ok(self.view().await?.links())
    }

    /// The fabric, as an explicit document.
    ///
    /// # Errors
    /// As above.
    pub async fn fabric(&self) -> Result<FabricDocument, ServiceError> {
        let realised = self.access.realised().ok_or(ControllerError::Stopped)?;
        Ok(spec::document(&realised.fabric))
    }

    /// The plan in force.
    ///
    /// # Errors
    /// As above.
    pub async fn plan(&self) -> Result<PlanDocument, ServiceError> {
        Ok(self.view().await?.plan())
    }

    /// What is planned for.
    ///
    /// # Errors
    /// The controller has stopped.
    pub async fn situation(&self) -> Result<Situation, ServiceError> {
        Ok(self.access.look(Situation::of).await?)
    }

    /// What an operator should look at.
    ///
    /// # Errors
    /// As above.
    pub async fn doctor(&self) -> Result<Vec<Finding>, ServiceError> {
        Ok(self.view().await?.doctor())
    }

    /// Why a job, or the job of a flow, is treated as it is.
    ///
    /// # Errors
    /// There is neither; the error has the nearest name.
    pub async fn explain(&self, name: &str) -> Result<Explanation, ServiceError> {
        let view = self.view().await?;
        let unknown = || {
            let jobs = view.realised.plan.jobs.iter().map(|job| job.id.as_str());
            let near = document::nearest(name, jobs);
            let near = near.map_or_else(String::new, |near| format!("; did you mean `{near}`?"));
            ServiceError::Unknown(format!("no job and no flow is called `{name}`{near}"))
        };
        view.explain(name).ok_or_else(unknown)
    }

    /// Metrics as Prometheus reads them.
    ///
    /// # Errors
    /// As above.
    pub async fn metrics(&self) -> Result<String, ServiceError> {
        Ok(metrics::text(
            &self.view().await?,
            &self.access.latest_timing(),
            &self.access.stages(),
        ))
    }

    /// The edition of the policy that is in force.
    ///
    /// # Errors
    /// The controller has stopped.
    pub async fn policy(&self) -> Result<Edition, ServiceError> {
        Ok(self
            .access
            .look(|state| state.ledger().latest().clone())
            .await?)
    }

    /// All editions, the latest first.
    ///
    /// # Errors
    /// The controller has stopped.
    pub async fn history(&self) -> Result<Vec<Chapter>, ServiceError> {
        let history = |state: &State| {
            let history = state.ledger().history().into_iter();
            let chapter = |(edition, changes): (&Edition, _)| Chapter {
                edition: edition.clone(),
                changes,
            };
            history.map(chapter).collect()
        };
        Ok(self.access.look(history).await?)
    }

    /// What a change would do; nothing changes.
    ///
    /// # Errors
    /// It would be refused.
    pub async fn diff(&self, wish: &Wish) -> Result<Preview, ServiceError> {
        let content = self.content(wish).await?;
        let considered = content.clone();
        let look = move |state: &State| {
            let changes = state.ledger().latest().content.changes(&considered);
            (changes, state.consider(&considered))
        };
        let (policy, question) = self.access.look(look).await?;
        let question = question.map_err(refused)?;
        let tables = self.access.desired().tables.clone();
        let present = self.access.realised().ok_or(ControllerError::Stopped)?;
        let work = move || preview(question, &present, &tables);
        let preview = tokio::task::spawn_blocking(work).await;
        let preview = preview.map_err(|_| ControllerError::Stopped)?;
        let preview =
            preview.map_err(|why| refused(Finding::error("forecast", why.to_string())))?;
        Ok(Preview { policy, ..preview })
    }

    /// Makes a change: all of it, or none.
    ///
    /// # Errors
    /// It is refused. That switches do not hold it in time is no error but the answer that it was
    /// taken back.
    pub async fn apply(&self, order: &Order) -> Result<Done, ServiceError> {
        let content = self.content(&order.wish).await?;
        let signature = self.sign(&order.who, &order.why);
        self.put(content, signature, order.confirm_within).await
    }

    /// Lets the edition on trial stay.
    ///
    /// # Errors
    /// Nothing is on trial.
    pub async fn confirm(&self, _: &Say) -> Result<Done, ServiceError> {
        let receipt = self.tell(Event::PolicyConfirmed).await?;
        self.done(true, receipt.findings).await
    }

    /// Goes back: from a trial, to what was before it, or to any edition.
    ///
    /// # Errors
    /// There is nothing to go back to.
    pub async fn roll_back(&self, say: &Say) -> Result<Done, ServiceError> {
        let signature = self.sign(&say.who, &say.why);
        let wanted = say.edition;
        let target = move |state: &State| {
            let ledger = state.ledger();
            let edition = wanted.map_or_else(|| ledger.before(), |number| ledger.edition(number));
            let content = edition.map(|edition| edition.content.clone());
            (ledger.latest().trial.is_some(), content)
        };
        let (on_trial, content) = self.access.look(target).await?;
        if on_trial && wanted.is_none() {
            return self.revert(signature, Vec::new()).await;
        }
        let unknown = || match wanted {
            Some(number) => ServiceError::Unknown(format!("there is no edition {number}")),
            None => ServiceError::Unknown("nothing was in force before".to_owned()),
        };
        self.put(content.ok_or_else(unknown)?, signature, None)
            .await
    }

    /// Puts a content in force, and keeps it if every switch holds it in time.
    async fn put(
        &self,
        content: Content,
        signature: Signature,
        confirm_within: Option<u64>,
    ) -> Result<Done, ServiceError> {
        let within = confirm_within.map_or(self.verify + MARGIN, Duration::from_secs);
        let until = signature.at_ms.saturating_add(within.as_millis() as u64);
        let proposal = Proposal {
            content,
            signature: signature.clone(),
            trial_until: Some(until),
        };
        let receipt = self.tell(Event::PolicyProposed(Box::new(proposal))).await?;
        let verified = self.access.await_verified(receipt.generation, self.verify);
        if let Err(why) = verified.await {
            let told = Finding::error("policy", format!("taken back: {why}"));
            let why = "not every switch held it in time".to_owned();
            let signature = Signature { why, ..signature };
            return self.revert(signature, vec![told]).await;
        }
        let is_on_trial = |state: &State| state.ledger().latest().trial.is_some();
        if confirm_within.is_none() && self.access.look(is_on_trial).await? {
            self.tell(Event::PolicyConfirmed).await?;
        }
        self.done(true, receipt.findings).await
    }

    async fn revert(
        &self,
        signature: Signature,
        mut findings: Vec<Finding>,
    ) -> Result<Done, ServiceError> {
        let receipt = self.tell(Event::PolicyReverted(signature)).await?;
        findings.extend(receipt.findings);
        self.done(false, findings).await
    }

    async fn done(&self, applied: bool, findings: Vec<Finding>) -> Result<Done, ServiceError> {
        let latest = self.policy().await?;
        Ok(Done {
            edition: latest.number,
            applied,
            trial_until_ms: latest.trial.map(|trial| trial.until_ms),
            findings,
        })
    }

    /// Submits an event of which a refusal is an error.
    async fn tell(&self, event: Event) -> Result<Receipt, ServiceError> {
        let receipt = self.access.submit(event).await?;
        match receipt.refusal {
            Some(finding) => Err(refused(finding)),
            None => Ok(receipt),
        }
    }

    fn sign(&self, who: &str, why: &str) -> Signature {
        // What somebody says of themselves stands beside what is known of them.
        let who = match self.caller.as_deref() {
            None => who.to_owned(),
            Some(known) if who.is_empty() || who == known => known.to_owned(),
            Some(known) => format!("{known} (says {who})"),
        };
        Signature {
            who,
            why: why.to_owned(),
            at_ms: self.access.clock().now(),
        }
    }

    /// What a wish comes to, on what is in force.
    async fn content(&self, wish: &Wish) -> Result<Content, ServiceError> {
        let mut content = self.policy().await?.content;
        if let Some(text) = &wish.policy {
            content.policy = read(text).map_err(refused)?;
        }
        if let Some(wanted) = &wish.temporary {
            let lasts = wanted.seconds.saturating_mul(1_000);
            let temporary = Temporary {
                rule: wanted.rule.clone(),
                until_ms: self.access.clock().now().saturating_add(lasts),
            };
            content.temporary.insert(0, temporary);
        }
        Ok(content)
    }
}

/// The policy document that a text is, with the line of whatever is wrong.
///
/// # Errors
/// What is wrong, where, and what would be right.
pub fn read(text: &Text) -> Result<PolicyDocument, Finding> {
    let Text { file, text } = text;
    let wrong = |error: DocumentError| Finding::error("policy", error.to_string());
    let format = Format::of_file(file).map_err(wrong)?;
    let document: PolicyDocument = document::parse(text, format, file).map_err(wrong)?;
    let sound = document.validate(file);
    let located = |error: FieldError| error.in_text(text, format);
    sound.map_err(|error| Finding::error("policy", located(error).to_string()))?;
    Ok(document)
}

fn refused(finding: Finding) -> ServiceError {
    ServiceError::Refused(vec![finding])
}
