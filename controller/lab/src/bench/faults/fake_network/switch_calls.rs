//! The calls of a controller to a switch, with what becomes of them on the way.
//!
//! They are the other half of [`FakeConnection`], which carries the messages. The decision: what a
//! planted bug or a lie changes is seen here, call by call.

use async_trait::async_trait;
use controller::southbound::RunningProgram;

use super::*;

#[async_trait]
impl SwitchConnection for FakeConnection {
    async fn open_stream(&self, bid: ElectionId) -> Result<StreamChannel, ClientError> {
        self.send_one_way("StreamChannel").await?;
        let bid = self.sent_election_id(bid);
        self.check_owner("a bid");
        let (session, verdicts) =
            self.with_switch(|device| device.open_stream(self.network.controller, bid));
        let (outgoing, messages) = mpsc::channel(NOTICES);
        tokio::spawn(self.clone_connection().forward_bids(session, messages));
        let state = (self.clone_connection(), verdicts, 0);
        let messages = stream::unfold(state, |(line, mut verdicts, mut flooded)| async move {
            let message = line.next_message(&mut verdicts, &mut flooded).await?;
            Some((Ok(message), (line, verdicts, flooded)))
        });
        Ok(StreamChannel { outgoing, incoming: messages.boxed() })
    }

    async fn read_cookie(&self) -> Result<Option<u64>, ClientError> {
        self.send_one_way("GetForwardingPipelineConfig").await?;
        self.await_answer("GetForwardingPipelineConfig").await?;
        let program = self.with_switch(|device| device.program);
        self.send_one_way("GetForwardingPipelineConfig").await?;
        match self.network.planted_bug {
            PlantedBug::BelievesInProgram => Ok(Some(ForwardingPipeline::embedded_fabric().cookie)),
            _ => Ok(program),
        }
    }

    /// The fake switches run no program but `fabric.p4`, unless they are somebody else's.
    async fn read_program(&self) -> Result<Option<RunningProgram>, ClientError> {
        self.send_one_way("GetForwardingPipelineConfig").await?;
        self.await_answer("GetForwardingPipelineConfig").await?;
        if self.network.planted_bug == PlantedBug::TakesProgramsForNone {
            return Ok(None);
        }
        if let Some(foreign) = self.with_switch(|device| device.foreign) {
            return Ok(Some(foreign.program()));
        }
        let cookie = self.with_switch(|device| device.program);
        let tables = ForwardingPipeline::embedded_fabric().p4info.table_ids();
        let tables = tables.into_iter().map(|id| (id, id.0.to_string())).collect();
        Ok(cookie.map(|cookie| RunningProgram { cookie: Some(cookie), tables }))
    }

    async fn push_pipeline(
        &self,
        pipeline: &ForwardingPipeline,
        election: ElectionId,
        entries: ExistingEntries,
    ) -> Result<(), ClientError> {
        let call = "SetForwardingPipelineConfig";
        self.check_mastership(call);
        self.send_one_way(call).await?;
        self.check_owner(call);
        self.with_switch(|device| {
            device.authorize_write(election)?;
            device.program = Some(pipeline.cookie);
            if entries == ExistingEntries::Drop {
                device.tables = SwitchTables::default();
            }
            Ok(())
        })
        .map_err(|code| call_error(call, code))?;
        self.send_one_way(call).await
    }

    async fn read_tables(
        &self,
        _: &ForwardingPipeline,
        of: &TableScope,
    ) -> Result<SwitchTables, ClientError> {
        self.send_one_way("Read").await?;
        self.await_answer("Read").await?;
        let lie = self.lie();
        if lie == Some(SwitchLie::EndlessReads) {
            let bounded = read_endlessly(self.read_max, self.network.planted_bug);
            return Err(bounded.unwrap_or_else(|what| {
                self.report_violation(&what);
                ClientError::Deadline("Read")
            }));
        }
        let tables = self.with_switch(|device| device.tables.entries_within(of));
        let tables = lie.map_or(tables.clone(), |lie| lie.distort_tables(tables, of));
        self.send_one_way("Read").await?;
        if let Some(all) = self.take_acknowledged() {
            return Ok(all.entries_within(of));
        }
        Ok(self.cached_tables().map_or(tables, |all| all.entries_within(of)))
    }

    /// No fault of a switch is in its digests.
    async fn subscribe_digests(
        &self,
        _: &DigestTiming,
        _: ElectionId,
    ) -> Result<Result<(), String>, ClientError> {
        Ok(Ok(()))
    }

    async fn write_updates(
        &self,
        updates: &[TableUpdate],
        election: ElectionId,
    ) -> Result<Result<(), WriteError>, ClientError> {
        self.check_mastership("Write");
        self.await_answer("Write").await?;
        let forgets = self.network.planted_bug == PlantedBug::ForgetsDeletions;
        let sent: Vec<TableUpdate> = updates
            .iter()
            .filter(|update| !forgets || update.kind != UpdateKind::Delete)
            .cloned()
            .collect();
        let fate = self.network.draw_fate(self.switch, self.deadline);
        match fate {
            MessageFate::Arrives(after) => self.wait_for_slot(after).await,
            MessageFate::Lost => {
                self.wait_for_slot(self.deadline).await;
                return Err(ClientError::Deadline("Write"));
            }
            MessageFate::Late(after) => {
                self.apply_batch_later(sent, election, after);
                self.wait_for_slot(self.deadline).await;
                return Err(ClientError::Deadline("Write"));
            }
            MessageFate::Twice(after) => {
                self.wait_for_slot(after).await;
                self.apply_batch_later(sent.clone(), election, 40 * after);
            }
        }
        let codes = self.apply_batch(&sent, election).map_err(|code| call_error("Write", code))?;
        self.send_one_way("Write").await?;
        let refusals = collect_refusals(&sent, &codes);
        if refusals.is_empty() {
            self.note_acknowledged(&sent);
            let tables = self.with_switch(|device| device.tables.clone());
            let mut after = self.cached_tables().unwrap_or(tables);
            after.apply(&sent);
            self.store_cached_tables(after);
            return Ok(Ok(()));
        }
        Ok(Err(WriteError::Refused(refusals)))
    }
}

fn collect_refusals(updates: &[TableUpdate], codes: &[Code]) -> Vec<RefusedUpdate> {
    let pairs = updates.iter().zip(codes).enumerate();
    let refused = pairs.filter(|(_, (_, code))| **code != Code::Ok);
    refused
        .map(|(position, (update, code))| RefusedUpdate {
            position,
            update: update.clone(),
            code: *code,
            message: "refused by the schedule".to_owned(),
        })
        .collect()
}
