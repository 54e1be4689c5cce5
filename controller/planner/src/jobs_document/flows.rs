//! Flows of a job, stated or derived.
//!
//! No two flows may state one five-tuple. A flow without a UDP source port gets none: its host
//! chooses the port, and any that was invented here would be that of another packet or of none.

use std::collections::BTreeSet;

use topology::{HostId, Nic, NicId};

use super::collective::{CollectiveDocument, collective_transfers};
use super::{JobDocument, JobFields, JobGpus, MAX_BYTES};
use crate::input::{Flow, FlowGpus, Job};
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
    gpus: FlowGpus,
}

/// The flows of a job before the ports of all jobs are compared.
pub(super) type FlowDrafts = Vec<FlowDraft>;

impl JobFields<'_> {
    /// The flows that the document states, or those of its collective operation.
    pub(super) fn resolve_flows(
        &self,
        document: &JobDocument,
        job: &Job,
        gpus: &JobGpus,
        profile: Option<&ModelProfile>,
    ) -> Result<FlowDrafts, DocumentFieldError> {
        let flows: FlowDrafts = match (&document.flows, &document.collective) {
            (Some(_), Some(_)) => {
                let problem = "stands beside `flows`; one of both".to_owned();
                return Err(self.field_error("collective", problem));
            }
            (Some(flows), None) => (0..flows.len())
                .map(|index| self.resolve_stated_flow(flows, index, gpus))
                .collect::<Result<_, _>>()?,
            (None, Some(collective)) => {
                let bytes = profile.and_then(|profile| profile.gradient_bytes);
                self.derive_flows(collective, bytes, job, gpus)?
            }
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
        gpus: &JobGpus,
    ) -> Result<FlowDraft, DocumentFieldError> {
        let (flow, field) = (&flows[index], format!("flows[{index}]"));
        let src = self.resolve_nic(&format!("{field}.src"), &flow.src, flow.src_nic)?;
        let dst = self.resolve_nic(&format!("{field}.dst"), &flow.dst, flow.dst_nic)?;
        if src == dst {
            let problem = format!("from {}:{} to itself", flow.src, flow.src_nic);
            return Err(self.field_error(&format!("{field}.dst"), problem));
        }
        let bytes = self.check_range(&format!("{field}.bytes"), flow.bytes, MAX_BYTES)?;
        let gpus = FlowGpus::new(
            self.resolve_gpu(&format!("{field}.src_gpu"), src, flow.src_gpu, gpus)?,
            self.resolve_gpu(&format!("{field}.dst_gpu"), dst, flow.dst_gpu, gpus)?,
        );
        Ok(FlowDraft { field, src, dst, bytes, udp_src_port: flow.udp_src_port, gpus })
    }

    /// The GPU at an end of a flow: the stated one, or that of the job beside the NIC.
    fn resolve_gpu(
        &self,
        field: &str,
        nic: NicId,
        stated: Option<u32>,
        gpus: &JobGpus,
    ) -> Result<Option<u32>, DocumentFieldError> {
        let Nic { host, index, .. } = *self.fabric.nic(nic);
        let has = self.fabric.host(host).gpus;
        match (stated, self.fabric.interconnect_of(host)) {
            (Some(gpu), _) if gpu >= has => {
                let problem = format!("GPU {gpu} of a host with {has} GPUs, counted from 0");
                Err(self.field_error(field, problem))
            }
            (Some(gpu), _) => Ok(Some(gpu)),
            (None, None) => Ok(None),
            (None, Some(interconnect)) => {
                Ok(gpus.get(&host).and_then(|gpus| gpus.gpu_at_nic(interconnect, index)))
            }
        }
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
        collective: &CollectiveDocument,
        gradient_bytes: Option<f64>,
        job: &Job,
        gpus: &JobGpus,
    ) -> Result<FlowDrafts, DocumentFieldError> {
        let bytes = collective.bytes.or(gradient_bytes);
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
                let [(src, src_gpu), (dst, dst_gpu)] = [
                    self.ends_of_channel(transfer.src, transfer.channel, gpus)?,
                    self.ends_of_channel(transfer.dst, transfer.channel, gpus)?,
                ];
                Ok(FlowDraft {
                    field: "collective".to_owned(),
                    src,
                    dst,
                    bytes: transfer.bytes,
                    udp_src_port: None,
                    gpus: FlowGpus::new(src_gpu, dst_gpu),
                })
            })
            .collect()
    }

    /// The NIC of a host that serves a channel, and the GPU there if it is known: channels take the
    /// NICs in turn, those on the PCIe switches of the job's GPUs where the switches are known.
    fn ends_of_channel(
        &self,
        host: HostId,
        channel: u32,
        gpus: &JobGpus,
    ) -> Result<(NicId, Option<u32>), DocumentFieldError> {
        let nics = &self.fabric.host(host).nics;
        if nics.is_empty() {
            let problem = format!("host {} has no NIC", self.fabric.host(host).name);
            return Err(self.field_error("collective", problem));
        }
        let described = self.fabric.interconnect_of(host).zip(gpus.get(&host));
        let (nic, gpu) = match described {
            None => (channel % nics.len() as u32, None),
            Some((interconnect, gpus)) => {
                let ends = gpus.ends_of_channel(interconnect, nics.len() as u32, channel);
                (ends.0, Some(ends.1))
            }
        };
        Ok((nics[nic as usize], gpu))
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
        let FlowDraft { src, dst, bytes, udp_src_port, gpus, .. } = draft;
        Flow { src, dst, bytes, udp_src_port, gpus }
    });
    flows.collect()
}
