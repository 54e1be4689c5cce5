//! Flows of a job, stated or derived.
//!
//! No two flows may state one five-tuple. A flow without a UDP source port gets none: its host
//! chooses the port, and any that was invented here would be that of another packet or of none.

use std::collections::{BTreeMap, BTreeSet};

use topology::{HostId, Nic, NicId};

use super::collective::{CollectiveDocument, RankGroups, collective_transfers};
use super::gpu_assignment::HostGpus;
use super::{JobDocument, JobFields, JobGpus, MAX_BYTES, RankTraffic};
use crate::input::{Flow, FlowGpus};
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
    overlap_from: Option<f64>,
}

/// The flows of a job before the ports of all jobs are compared.
pub(super) type FlowDrafts = Vec<FlowDraft>;

impl JobFields<'_> {
    /// The flows that the document states, or those of its collective operation or its ranks.
    pub(super) fn resolve_flows(
        &self,
        document: &JobDocument,
        hosts: &[HostId],
        gpus: &JobGpus,
        profile: Option<&ModelProfile>,
    ) -> Result<FlowDrafts, DocumentFieldError> {
        let traffic = &document.rank_traffic;
        let is_collective = document.all_collectives().next().is_some();
        if is_collective && document.flows.is_some() {
            let field = if document.collective.is_some() { "collective" } else { "collectives" };
            let problem = "stands beside `flows`; one of both".to_owned();
            return Err(self.field_error(field, problem));
        }
        if (is_collective || document.flows.is_some()) && !traffic.is_empty() {
            let problem = "stands beside `flows` or `collective`; one of them".to_owned();
            return Err(self.field_error("rank_traffic", problem));
        }
        let flows: FlowDrafts = if let Some(flows) = &document.flows {
            (0..flows.len())
                .map(|index| self.resolve_stated_flow(flows, index, gpus))
                .collect::<Result<_, _>>()?
        } else if is_collective {
            let gradients = profile.and_then(|profile| profile.gradient_bytes);
            let one = document.collective.iter().map(|of| ("collective".to_owned(), of));
            let several = document.collectives.iter().enumerate();
            let several = several.map(|(index, of)| (format!("collectives[{index}]"), of));
            let mut flows = Vec::new();
            for (field, collective) in one.chain(several) {
                flows.extend(self.flows_of_collective(&field, collective, gradients, hosts, gpus)?);
                if flows.len() > MAX_DERIVED_FLOWS {
                    return Err(self.field_error(&field, too_many_flows()));
                }
            }
            flows
        } else {
            self.flows_between_ranks("rank_traffic", traffic, hosts, gpus)?
        };
        let mut begins = BTreeSet::new();
        let begin = |flow: &FlowDraft| flow.overlap_from.map(f64::to_bits);
        let one_more = flows.iter().find(|flow| {
            begin(flow).is_some_and(|at| begins.insert(at) && begins.len() > MAX_BEGINS)
        });
        if let Some(flow) = one_more {
            let problem = format!("more than {MAX_BEGINS} of a job, which plans follow one by one");
            return Err(self.field_error(&format!("{}.overlap_from", flow.field), problem));
        }
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
        let overlap_from = self.check_overlap(&field, flow.overlap_from)?;
        let udp_src_port = flow.udp_src_port;
        Ok(FlowDraft { field, src, dst, bytes, udp_src_port, gpus, overlap_from })
    }

    /// The fraction of the computation after which a flow or a collective may begin, if it states
    /// one.
    fn check_overlap(
        &self,
        field: &str,
        stated: Option<f64>,
    ) -> Result<Option<f64>, DocumentFieldError> {
        let check = |value| self.check_range(&format!("{field}.overlap_from"), value, 1.0);
        stated.map(check).transpose()
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

    /// The hosts of each group of a collective in the order of ranks, with the GPUs that it has
    /// there.
    fn resolve_groups(
        &self,
        field: &str,
        collective: &CollectiveDocument,
        hosts: &[HostId],
        gpus: &JobGpus,
    ) -> Result<Vec<(Vec<HostId>, JobGpus)>, DocumentFieldError> {
        let Some(groups) = collective.groups else {
            return Ok(vec![(hosts.to_vec(), gpus.clone())]);
        };
        let ranks = ranks_in_order(hosts, gpus);
        let members = self.resolve_members(field, groups, ranks.len())?;
        let group = |members: Vec<u32>| {
            let mut hosts: Vec<HostId> = Vec::new();
            let mut own: BTreeMap<HostId, Vec<u32>> = BTreeMap::new();
            for (host, gpu) in members.iter().map(|rank| ranks[*rank as usize]) {
                let indices = own.entry(host).or_default();
                if indices.is_empty() {
                    hosts.push(host);
                }
                indices.push(gpu);
            }
            let own = own.into_iter().map(|(host, indices)| (host, gpus[&host].subset(indices)));
            (hosts, own.collect())
        };
        Ok(members.into_iter().map(group).collect())
    }

    fn resolve_members(
        &self,
        field: &str,
        groups: RankGroups,
        ranks: usize,
    ) -> Result<Vec<Vec<u32>>, DocumentFieldError> {
        groups.members(ranks as u32).ok_or_else(|| {
            let RankGroups { size, stride } = groups;
            let problem =
                format!("{size} ranks, {stride} apart, do not divide the {ranks} of the job");
            self.field_error(&format!("{field}.groups"), problem)
        })
    }

    fn flows_of_collective(
        &self,
        field: &str,
        collective: &CollectiveDocument,
        gradient_bytes: Option<f64>,
        hosts: &[HostId],
        gpus: &JobGpus,
    ) -> Result<FlowDrafts, DocumentFieldError> {
        let bytes = collective.bytes.or(gradient_bytes);
        let bytes = self.require_number(&format!("{field}.bytes"), bytes, MAX_BYTES)?;
        let overlap_from = self.check_overlap(field, collective.overlap_from)?;
        if let Some(groups) = collective.groups_of_stages() {
            // Each rank sends to that of the next stage, and back.
            let ranks = ranks_in_order(hosts, gpus).len();
            let pipelines = self.resolve_members(field, groups, ranks)?;
            let edges = pipelines.iter().flat_map(|stages| stages.windows(2));
            let both_ways = edges.flat_map(|edge| [(edge[0], edge[1]), (edge[1], edge[0])]);
            let sent: Vec<RankTraffic> =
                both_ways.map(|(src, dst)| RankTraffic { src, dst, bytes, overlap_from }).collect();
            return self.flows_between_ranks(field, &sent, hosts, gpus);
        }
        let mut flows = Vec::new();
        for (hosts, gpus) in self.resolve_groups(field, collective, hosts, gpus)? {
            flows.extend(self.derive_flows(field, collective, bytes, &hosts, &gpus)?);
            if flows.len() > MAX_DERIVED_FLOWS {
                return Err(self.field_error(field, too_many_flows()));
            }
        }
        flows.iter_mut().for_each(|flow| flow.overlap_from = overlap_from);
        Ok(flows)
    }

    /// The flows of an operation on `bytes` among hosts, as early as those of the job.
    fn derive_flows(
        &self,
        field: &str,
        collective: &CollectiveDocument,
        bytes: f64,
        hosts: &[HostId],
        gpus: &JobGpus,
    ) -> Result<FlowDrafts, DocumentFieldError> {
        // Of a group, it is known which GPUs send.
        let is_stated = collective.channels.is_some() && collective.groups.is_none();
        let own: BTreeMap<HostId, Vec<u32>> = hosts
            .iter()
            .map(|host| (*host, self.nics_of_channels(*host, gpus, is_stated)))
            .collect();
        let channels = collective.channels.unwrap_or_else(|| {
            let most = own.values().map(Vec::len).max().unwrap_or(1);
            (most as u32).clamp(1, MAX_CHANNELS)
        });
        if !(1..=MAX_CHANNELS).contains(&channels) {
            let problem = format!("{channels} is not from 1 to {MAX_CHANNELS}");
            return Err(self.field_error(&format!("{field}.channels"), problem));
        }
        let pairs = collective.kind.count_pairs(hosts.len());
        if pairs.saturating_mul(channels as usize) > MAX_DERIVED_FLOWS {
            return Err(self.field_error(field, too_many_flows()));
        }
        let end = |host: HostId, channel| self.end_of_channel(host, &own[&host], channel, gpus);
        let ranks = |host: &HostId| gpus.get(host).map_or(1, |gpus| gpus.indices().len() as u32);
        let members: Vec<(HostId, u32)> = hosts.iter().map(|host| (*host, ranks(host))).collect();
        let transfers = collective_transfers(collective.kind, &members, bytes, channels);
        transfers
            .iter()
            .map(|transfer| {
                let (src, src_gpu) = end(transfer.src, transfer.channel)?;
                let (dst, dst_gpu) = end(transfer.dst, transfer.channel)?;
                Ok(FlowDraft {
                    field: field.to_owned(),
                    src,
                    dst,
                    bytes: transfer.bytes,
                    udp_src_port: None,
                    gpus: FlowGpus::new(src_gpu, dst_gpu),
                    overlap_from: None,
                })
            })
            .collect()
    }

    /// The flows of what ranks send, one for each pair of NICs and start, without traffic inside a
    /// host.
    fn flows_between_ranks(
        &self,
        path: &str,
        traffic: &[RankTraffic],
        hosts: &[HostId],
        gpus: &JobGpus,
    ) -> Result<FlowDrafts, DocumentFieldError> {
        let ranks = ranks_in_order(hosts, gpus);
        let mut flows: BTreeMap<(NicId, NicId, Option<u64>), FlowDraft> = BTreeMap::new();
        for (index, sent) in traffic.iter().enumerate() {
            let field = |name: &str| format!("{path}[{index}].{name}");
            let end = |name: &str, rank: u32| match ranks.get(rank as usize) {
                Some((host, gpu)) => Ok((*host, *gpu)),
                None => {
                    let problem = format!("rank {rank} of a job of {}", ranks.len());
                    Err(self.field_error(&field(name), problem))
                }
            };
            let (src, dst) = (end("src", sent.src)?, end("dst", sent.dst)?);
            let bytes = self.check_range(&field("bytes"), sent.bytes, MAX_BYTES)?;
            let of_pair = format!("{path}[{index}]");
            let overlap_from = self.check_overlap(&of_pair, sent.overlap_from)?;
            if src.0 == dst.0 {
                continue;
            }
            let (src, src_gpu) = self.nic_of_gpu(src)?;
            let (dst, dst_gpu) = self.nic_of_gpu(dst)?;
            let key = (src, dst, overlap_from.map(f64::to_bits));
            let flow = flows.entry(key).or_insert_with(|| FlowDraft {
                field: of_pair,
                src,
                dst,
                bytes: 0.0,
                udp_src_port: None,
                gpus: FlowGpus::new(src_gpu, dst_gpu),
                overlap_from,
            });
            flow.bytes += bytes;
        }
        Ok(flows.into_values().collect())
    }

    /// The NIC of a GPU of a host, and the GPU where it matters.
    fn nic_of_gpu(
        &self,
        (host, gpu): (HostId, u32),
    ) -> Result<(NicId, Option<u32>), DocumentFieldError> {
        let interconnect = self.fabric.interconnect_of(host);
        // The GPUs of a PCIe switch with several NICs take these in turn.
        let own = self.nics_of_gpus(host, &[gpu]);
        let nic = own.get(gpu as usize % own.len().max(1));
        let nic = nic.and_then(|nic| self.fabric.nic_of(host, *nic));
        let nic = nic.ok_or_else(|| self.lacks_nic(host))?;
        Ok((nic, interconnect.map(|_| gpu)))
    }

    fn lacks_nic(&self, host: HostId) -> DocumentFieldError {
        let problem = format!("host {} has no NIC", self.fabric.host(host).name);
        self.field_error("gpus", problem)
    }

    /// The NICs of a host that channels take in turn: all of them where their number is stated and
    /// nobody knows which GPUs the job has.
    fn nics_of_channels(&self, host: HostId, gpus: &JobGpus, is_stated: bool) -> Vec<u32> {
        let is_described = self.fabric.interconnect_of(host).is_some();
        match gpus.get(&host) {
            Some(gpus) if is_described || gpus.is_certain() || !is_stated => {
                self.nics_of_gpus(host, gpus.indices())
            }
            _ => (0..self.fabric.host(host).nics.len() as u32).collect(),
        }
    }

    /// The NIC of a host that serves a channel, and the GPU there where it matters.
    fn end_of_channel(
        &self,
        host: HostId,
        own: &[u32],
        channel: u32,
        gpus: &JobGpus,
    ) -> Result<(NicId, Option<u32>), DocumentFieldError> {
        let nic = own.get(channel as usize % own.len().max(1));
        let nic = *nic.ok_or_else(|| self.lacks_nic(host))?;
        let described = self.fabric.interconnect_of(host).zip(gpus.get(&host));
        let turn = channel as usize / own.len();
        let gpu = described.map(|(interconnect, gpus)| gpus.gpu_of_turn(interconnect, nic, turn));
        Ok((self.fabric.host(host).nics[nic as usize], gpu))
    }

    /// Indices of the NICs of these GPUs of a host: those on their PCIe switches where the switches
    /// are known; else GPU `g` has NIC `g` modulo the NICs.
    fn nics_of_gpus(&self, host: HostId, gpus: &[u32]) -> Vec<u32> {
        let nics = self.fabric.host(host).nics.len() as u32;
        match self.fabric.interconnect_of(host) {
            Some(interconnect) => interconnect.nics_of_gpus(gpus, nics),
            None => {
                let own = gpus.iter().filter_map(|gpu| gpu.checked_rem(nics));
                own.collect::<BTreeSet<u32>>().into_iter().collect()
            }
        }
    }
}

/// The host and the GPU of each rank.
fn ranks_in_order(hosts: &[HostId], gpus: &JobGpus) -> Vec<(HostId, u32)> {
    let of_host = |host: &HostId| {
        let indices = gpus.get(host).map(HostGpus::indices).unwrap_or_default();
        let host = *host;
        indices.iter().map(move |gpu| (host, *gpu))
    };
    hosts.iter().flat_map(of_host).collect()
}

/// More channels than any NIC can use; it limits the effect of one line of a document.
pub const MAX_CHANNELS: u32 = 64;

/// More flows than the tables of a fabric take: a line about many hosts must not exhaust memory.
const MAX_DERIVED_FLOWS: usize = 1_000_000;

/// More instants of an iteration at which flows begin than a framework has kinds of operations:
/// each of them costs a pass over the flows of the job, in plans and in simulations.
const MAX_BEGINS: usize = 64;

fn too_many_flows() -> String {
    format!("more than {MAX_DERIVED_FLOWS} flows; give fewer channels, or groups of fewer ranks")
}

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
        let FlowDraft { src, dst, bytes, udp_src_port, gpus, overlap_from, .. } = draft;
        Flow { src, dst, bytes, udp_src_port, gpus, overlap_from }
    });
    flows.collect()
}
