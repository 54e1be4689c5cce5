//! The program that a switch runs, and whether it may be replaced.
//!
//! [`session`](super::session) asks before it bids, [`reconcile`](super::reconcile) before it
//! pushes, and one-shot discovery before either. The decision: a program is known by its tables.
//! Cookies are optional, so a program without one is still somebody's.

use std::collections::BTreeMap;

use p4::entry::TableId;

use super::client::ClientError;
use super::connection::SwitchConnection;
use crate::config::{OtherPrograms, SouthboundConfig};
use crate::pipeline::SwitchPipeline;
use crate::pipelines::recognize_pipeline;

/// Tables that an error names at most.
const TABLES_NAMED: usize = 3;

/// The program that a switch runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunningProgram {
    /// The cookie that it was pushed with, if any.
    pub cookie: Option<u64>,
    /// Its tables, with their names.
    pub tables: BTreeMap<TableId, String>,
}

impl RunningProgram {
    /// Whether it is of the kind that the fabric document has for the switch, of whatever version.
    ///
    /// # Errors
    /// It is of another kind, known or not.
    fn check_kind(&self, pipeline: &dyn SwitchPipeline) -> Result<(), ClientError> {
        let wanted = pipeline.kind();
        match recognize_pipeline(&self.tables.keys().copied().collect()) {
            Some(found) if found == wanted => Ok(()),
            Some(found) => Err(ClientError::OtherPipeline { wanted, found }),
            None => Err(ClientError::ForeignProgram { wanted, tables: self.name_tables() }),
        }
    }

    /// The first of its tables, and how many more there are.
    fn name_tables(&self) -> String {
        let names: Vec<&str> = self.tables.values().map(String::as_str).collect();
        match names.as_slice() {
            [] => "none".to_owned(),
            few if few.len() <= TABLES_NAMED => few.join(", "),
            [first @ .., _] => {
                let named = &first[..TABLES_NAMED];
                format!("{} and {} more", named.join(", "), names.len() - named.len())
            }
        }
    }
}

/// The program that a switch runs, if the controller may replace it by `pipeline`'s.
///
/// # Errors
/// A call fails, or the program is of another kind and the configuration says that these stay.
pub(super) async fn read_replaceable(
    switch: &dyn SwitchConnection,
    pipeline: &dyn SwitchPipeline,
    limits: &SouthboundConfig,
) -> Result<Option<RunningProgram>, ClientError> {
    let running = switch.read_program().await?;
    if let Some(running) = &running
        && running.cookie != Some(pipeline.program().cookie)
        && limits.other_programs == OtherPrograms::Keep
    {
        running.check_kind(pipeline)?;
    }
    Ok(running)
}

#[cfg(test)]
mod tests {
    use topology::PipelineKind;

    use super::*;
    use crate::pipelines::pipeline_of;

    fn program_with(tables: impl IntoIterator<Item = TableId>) -> RunningProgram {
        let tables = tables.into_iter().map(|id| (id, format!("t{}", id.0))).collect();
        RunningProgram { cookie: None, tables }
    }

    fn refusal(tables: impl IntoIterator<Item = TableId>) -> Option<String> {
        let pipeline = pipeline_of(PipelineKind::Fabric);
        program_with(tables).check_kind(pipeline).err().map(|error| error.to_string())
    }

    #[test]
    fn a_program_without_a_cookie_is_known_by_its_tables() {
        let own = |kind| pipeline_of(kind).program().p4info.table_ids();
        assert_eq!(refusal(own(PipelineKind::Fabric)), None);
        let sai = refusal(own(PipelineKind::Sai)).unwrap();
        assert!(sai.starts_with("the switch runs the tables of sai.p4"), "{sai}");
        let few = refusal([1, 2].map(TableId)).unwrap();
        assert!(few.contains("(tables: t1, t2)"), "{few}");
        let many = refusal((1..=9).map(TableId)).unwrap();
        assert!(many.contains("(tables: t1, t2, t3 and 6 more)"), "{many}");
        let none = refusal([]).unwrap();
        assert!(none.contains("(tables: none)"), "{none}");
    }
}
