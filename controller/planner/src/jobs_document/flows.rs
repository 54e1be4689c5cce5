//! Flows of a job, stated or derived.
//!
//! No two flows may state one five-tuple. A flow without a UDP source port gets none: its host
//! chooses the port, and any that was invented here would be that of another packet or of none.

use std::collections::BTreeSet;

use topology::{HostId, NicId};

use super::collective::collective_transfers;
use super::{JobDocument, JobFields, MAX_BYTES};
use crate::input::{Flow, Job};
use crate::model_profiles::ModelProfile;
use crate::name_matching::DocumentFieldError;

/// A flow with the path of its field in the document.
#[derive(Clone, Debug)]
pub(super) struct FlowDraft {
    field: String,
    src: NicId,
    dst: NicId,
    bytes: f64,
    udp_src_port: Option<u16>,
}

/// The flows of a job before the ports of all jobs are compared.
pub(super) type FlowDrafts = Vec<FlowDraft>;

impl JobFields<'_> {
    /// The flows that the document states, or those of its collective operation.
    pub(super) fn resolve_flows(
        &self,
        document: &JobDocument,
        job: &Job,
        profile: Option<&ModelProfile>,
    ) -> Result<FlowDrafts, DocumentFieldError> {
        let flows: FlowDrafts = match (&document.flows, &document.collective) {
            (Some(_), Some(_)) => {
                let problem = "stands beside `flows`; one of both".to_owned();
                return Err(self.field_error("collective", problem));
            }
            (Some(flows), None) => (0..flows.len())
                .map(|index| self.resolve_stated_flow(flows, index))
                .collect::<Result<_, _>>()?,
            (None, Some(_)) => self.derive_flows(document, job, profile)?,
            (None, None) => Vec::new(),
        };
        match flows.iter().find(|flow| !self.is_one_ip_version(flow)) {
            Some(flow) => Err(self.field_error(&flow.field, self.describe_addresses(flow))),
            None => Ok(flows),
        }
    }

    fn is_one_ip_version(&self, flow: &FlowDraft) -> bool {
        self.fabric.nic(flow.src).ip.is_ipv4() == self.fabric.nic(flow.dst).ip.is_ipv4()
    }

    fn describe_addresses(&self, flow: &FlowDraft) -> String {
        let [src, dst] = [flow.src, flow.dst].map(|nic| self.fabric.nic(nic).ip);
        format!("from {src} to {dst}; a connection has addresses of one IP version")
    }

    fn resolve_stated_flow(
        &self,
        flows: &[super::FlowDocument],
        index: usize,
    ) -> Result<FlowDraft, DocumentFieldError> {
        let (flow, field) = (&flows[index], format!("flows[{index}]"));
        let src = self.resolve_nic(&format!("{field}.src"), &flow.src, flow.src_nic)?;
        let dst = self.resolve_nic(&format!("{field}.dst"), &flow.dst, flow.dst_nic)?;
        if src == dst {
            let problem = format!("from {}:{} to itself", flow.src, flow.src_nic);
            return Err(self.field_error(&format!("{field}.dst"), problem));
        }
        let bytes = self.check_range(&format!("{field}.bytes"), flow.bytes, MAX_BYTES)?;
        Ok(FlowDraft { field, src, dst, bytes, udp_src_port: flow.udp_src_port })
    }

    /// NIC `index` of the host; `field` is `..src` or `..dst`, its NIC field the same with `_nic`.
    fn resolve_nic(
        &self,
        field: &str,
        host: &str,
        index: u32,
    ) -> Result<NicId, DocumentFieldError> {
        let id = self.resolve_host(field, host)?;
        self.fabric.nic_of(id, index).ok_or_else(|| {
            let nics = self.fabric.host(id).nics.len();
            self.field_error(&format!("{field}_nic"), format!("{index} of a host with {nics} NICs"))
        })
    }

    fn derive_flows(
        &self,
        document: &JobDocument,
        job: &Job,
        profile: Option<&ModelProfile>,
    ) -> Result<FlowDrafts, DocumentFieldError> {
        let Some(collective) = &document.collective else {
            return Ok(Vec::new());
        };
        let bytes = collective.bytes.or(profile.and_then(|profile| profile.gradient_bytes));
        let bytes = self.require_number("collective.bytes", bytes, MAX_BYTES)?;
        if !(1..=MAX_CHANNELS).contains(&collective.channels) {
            let problem = format!("{} is not from 1 to {MAX_CHANNELS}", collective.channels);
            return Err(self.field_error("collective.channels", problem));
        }
        let used = job.gpus.iter().filter(|(_, gpus)| **gpus > 0);
        let hosts: Vec<_> = used.map(|(host, _)| *host).collect();
        let transfers = collective_transfers(collective.kind, &hosts, bytes, collective.channels);
        transfers
            .iter()
            .map(|transfer| {
                Ok(FlowDraft {
                    field: "collective".to_owned(),
                    src: self.nic_of_channel(transfer.src, transfer.channel)?,
                    dst: self.nic_of_channel(transfer.dst, transfer.channel)?,
                    bytes: transfer.bytes,
                    udp_src_port: None,
                })
            })
            .collect()
    }

    /// The NIC of a host that serves a channel: channels take the NICs in turn.
    fn nic_of_channel(&self, host: HostId, channel: u32) -> Result<NicId, DocumentFieldError> {
        let nics = &self.fabric.host(host).nics;
        nics.get(channel as usize % nics.len().max(1)).copied().ok_or_else(|| {
            let problem = format!("host {} has no NIC", self.fabric.host(host).name);
            self.field_error("collective", problem)
        })
    }
}

/// More channels than any NIC can use; it limits the effect of one line of a document.
pub const MAX_CHANNELS: u32 = 64;

/// The five-tuples in use. Addresses follow from the NICs; protocol and destination port are
/// RoCEv2's.
#[derive(Debug, Default)]
pub(super) struct StatedPorts {
    used: BTreeSet<(NicId, NicId, u16)>,
}

impl StatedPorts {
    /// Claims the ports that the document states.
    pub(super) fn claim_stated_ports(
        &mut self,
        fields: &JobFields<'_>,
        flows: &[FlowDraft],
    ) -> Result<(), DocumentFieldError> {
        for flow in flows {
            let Some(port) = flow.udp_src_port else {
                continue;
            };
            if !self.used.insert((flow.src, flow.dst, port)) {
                let problem = format!("{port} is taken by another flow between the same NICs");
                return Err(fields.field_error(&format!("{}.udp_src_port", flow.field), problem));
            }
        }
        Ok(())
    }
}

/// The flows of a job; those without a port are known by their NICs.
pub(super) fn build_flows(drafts: FlowDrafts) -> Vec<Flow> {
    let flows = drafts.into_iter().map(|draft| {
        let FlowDraft { src, dst, bytes, udp_src_port, .. } = draft;
        Flow { src, dst, bytes, udp_src_port }
    });
    flows.collect()
}
