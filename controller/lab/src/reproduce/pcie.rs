//! Crux, Figs. 21 and 22: jobs that share PCIe switches, without and with Crux (Crux §6.2).
//!
//! The jobs are placed so that they contend inside hosts only: no uplink of a leaf can fill,
//! whatever ECMP does. So what Crux changes here it changes by priority alone.

use std::collections::BTreeMap;

use planner::{CollectiveDocument, CollectiveKind, JobDocument, JobsDocument};
use topology::{Fabric, LinkScheduler, examples};

use super::SeedOptions;
use super::crux_gain::{CruxGain, NamedGains, drawn_rows};
use super::report::{MeasureRow, PaperReproduction, RangedMeasure};
use super::testbed::default_experiment;
use crate::demo::CALIBRATED;
use crate::demo::scenario::{TrainedModel, draw_number};
use command_io::CommandError;

/// Simulated time of one run.
const SECONDS: f64 = 120.0;

/// The hosts of the testbed in the order in which BERT takes them: the first and the last of every
/// leaf, then the third. So rings leave a leaf, and enter it, at the same host.
const HOSTS: [&str; 12] =
    ["h1", "h3", "h4", "h6", "h7", "h9", "h10", "h12", "h2", "h5", "h8", "h11"];

/// The GPUs of BERT and of ResNet in a host: one of each on either of two PCIe switches.
const BERT_GPUS: [u32; 2] = [0, 2];
const RESNET_GPUS: [u32; 2] = [1, 3];

/// Bytes of ResNet's all-reduce, as multiples of its calibrated volume, which no figure of the
/// paper contains.
const VOLUMES: [f64; 5] = [1.0, 8.0, 12.5, 16.0, 24.0];
/// The one that Fig. 21 is compared at.
const VOLUME: f64 = 12.5;

/// Numbers of 4-GPU ResNet jobs in Fig. 21.
const RESNETS: [usize; 4] = [1, 2, 3, 4];
/// Hosts of BERT in Fig. 22: 8, 16 and 24 GPUs.
const BERT_HOSTS: [usize; 3] = [4, 8, 12];

/// A job on two GPUs of each of its hosts.
struct PlacedJob<'a> {
    id: String,
    model: TrainedModel,
    hosts: &'a [&'a str],
    gpus: [u32; 2],
    /// Multiple of its calibrated volume.
    volume: f64,
}

impl<'a> PlacedJob<'a> {
    fn bert(hosts: usize) -> Self {
        let hosts = &HOSTS[..hosts];
        let (id, model) = ("bert".to_owned(), TrainedModel::Bert);
        Self { id, model, hosts, gpus: BERT_GPUS, volume: 1.0 }
    }

    fn resnet(number: usize, hosts: &'a [&'a str], volume: f64) -> Self {
        let (id, model) = (format!("resnet-{number}"), TrainedModel::ResNet);
        Self { id, model, hosts, gpus: RESNET_GPUS, volume }
    }

    /// The job in a document: a ring with a channel for each of its NICs. Its computation takes as
    /// long as the profile says, within one per cent by the seed, so that no result hangs on two
    /// periods that are multiples of each other.
    fn to_document(&self, seed: u64) -> Result<JobDocument, CommandError> {
        let profile = self.model.find_profile()?;
        let draw = draw_number(seed, &format!("computation of {}", self.id)) % 2_001;
        let jitter = 1.0 + (draw as f64 / 1_000.0 - 1.0) * 0.01;
        let by_host = |gpus: &[u32]| -> BTreeMap<String, Vec<u32>> {
            self.hosts.iter().map(|host| ((*host).to_owned(), gpus.to_vec())).collect()
        };
        // Ranks are in the order of the hosts' numbers, so that rings enter and leave a leaf once.
        let mut in_order = self.hosts.to_vec();
        in_order.sort_by_key(|host| (host.len(), *host));
        // Volumes are calibrated on a ring of hosts, and documents have one of ranks.
        let around = |members: usize| (members as f64 - 1.0) / members as f64;
        let ring = around(self.hosts.len()) / around(self.hosts.len() * self.gpus.len());
        Ok(JobDocument {
            id: self.id.clone(),
            gpus: in_order.into_iter().map(|host| (host.to_owned(), 2)).collect(),
            gpu_indices: by_host(&self.gpus),
            profile: Some(profile.name.clone()),
            compute_seconds: Some(profile.compute_seconds * jitter),
            collective: Some(CollectiveDocument {
                bytes: Some(CALIBRATED.volume_of(self.model)? * self.volume * ring),
                channels: Some(2),
                ..CollectiveDocument::new(CollectiveKind::RingAllReduce)
            }),
            ..JobDocument::default()
        })
    }
}

/// Whether anybody enforces priorities in hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HostPriority {
    /// Crux does, by semaphores and traffic classes (Crux §5).
    Enforced,
    /// Nobody: all traffic is served alike.
    Ignored,
}

/// A case: who runs together, on which links.
struct ContentionCase<'a> {
    jobs: Vec<PlacedJob<'a>>,
    priority: HostPriority,
}

impl ContentionCase<'_> {
    /// By seed.
    fn measure_gains(&self, options: SeedOptions) -> Result<Vec<CruxGain>, CommandError> {
        let fabric = testbed_fabric(self.priority)?;
        options.all_seeds().map(|seed| self.measure_gain(&fabric, seed)).collect()
    }

    fn measure_gain(&self, fabric: &Fabric, seed: u64) -> Result<CruxGain, CommandError> {
        let jobs = self.jobs.iter().map(|job| job.to_document(seed)).collect::<Result<_, _>>()?;
        let resolved = JobsDocument { jobs }.resolve_jobs(fabric, "jobs");
        let jobs = resolved.map_err(CommandError::document)?.jobs;
        CruxGain::measure(&default_experiment(fabric.clone(), jobs, SECONDS))
    }
}

/// The testbed with the inside of its hosts.
fn testbed_fabric(priority: HostPriority) -> Result<Fabric, CommandError> {
    let mut document =
        examples::example_document("crux-testbed-hosts").map_err(CommandError::document)?;
    if priority == HostPriority::Ignored {
        document.clos.iter_mut().for_each(|clos| clos.host_scheduler = None);
        let insides = document.host_interconnect.iter_mut();
        insides.for_each(|inside| inside.scheduler = LinkScheduler::Fifo);
    }
    Fabric::try_from(&document).map_err(CommandError::document)
}

/// Fig. 21: a 16-GPU BERT with so many 4-GPU ResNets, each on two hosts of it.
fn fig21_case(count: usize, volume: f64, priority: HostPriority) -> ContentionCase<'static> {
    let pairs = HOSTS.chunks(2).take(count).enumerate();
    let resnets = pairs.map(|(number, hosts)| PlacedJob::resnet(number + 1, hosts, volume));
    let jobs = std::iter::once(PlacedJob::bert(8)).chain(resnets).collect();
    ContentionCase { jobs, priority }
}

/// Fig. 22: an 8-GPU ResNet with a BERT on so many hosts, four of which are those of ResNet.
fn fig22_case(hosts: usize, volume: f64, priority: HostPriority) -> ContentionCase<'static> {
    let jobs = vec![PlacedJob::bert(hosts), PlacedJob::resnet(1, &HOSTS[..4], volume)];
    ContentionCase { jobs, priority }
}

/// The heading over the rows of a figure like the paper's.
const DRAWN_PART: &str = "as the paper draws it";

/// What Figs. 21 and 22 differ in.
struct PcieFigure<'a> {
    about: &'a str,
    source: &'a str,
    placement: &'a str,
    /// Sizes of the cases, and the name of each.
    sizes: &'a [usize],
    name: fn(usize) -> String,
    /// The case of a size, a volume of ResNet and a priority.
    case: fn(usize, f64, HostPriority) -> ContentionCase<'static>,
    /// The size at which volumes are swept.
    swept: usize,
}

/// A 16-GPU BERT with more and more 4-GPU ResNets.
const FIG21: PcieFigure<'static> = PcieFigure {
    about: "A 16-GPU BERT with n 4-GPU ResNets on its PCIe switches: Crux against ECMP.",
    source: "Cao et al. (Crux), SIGCOMM 2024, Fig. 21 and §6.2.",
    placement: "Placement: BERT has GPUs 0 and 2 of eight hosts, two under each leaf; each ResNet \
                has GPUs 1 and 3 of two of these hosts, which no other ResNet is on.",
    sizes: &RESNETS,
    name: |resnets| format!("{resnets} ResNet"),
    case: fig21_case,
    swept: 2,
};

/// An 8-GPU ResNet with a larger and larger BERT.
const FIG22: PcieFigure<'static> = PcieFigure {
    about: "An 8-GPU ResNet with a BERT of n GPUs on its PCIe switches: Crux against ECMP.",
    source: "Cao et al. (Crux), SIGCOMM 2024, Fig. 22 and §6.2.",
    placement: "Placement: BERT has GPUs 0 and 2 of 4, 8 or 12 hosts, ResNet GPUs 1 and 3 of the \
                first four.",
    sizes: &BERT_HOSTS,
    name: |hosts| format!("{}-GPU BERT", 2 * hosts),
    case: fig22_case,
    swept: 8,
};

pub(super) fn reproduce_fig21(options: SeedOptions) -> Result<PaperReproduction, CommandError> {
    FIG21.reproduce(options)
}

pub(super) fn reproduce_fig22(options: SeedOptions) -> Result<PaperReproduction, CommandError> {
    FIG22.reproduce(options)
}

impl PcieFigure<'_> {
    fn reproduce(&self, options: SeedOptions) -> Result<PaperReproduction, CommandError> {
        let enforced = self.by_size(HostPriority::Enforced, options)?;
        let ignored = self.by_size(HostPriority::Ignored, options)?;
        let under = |part: &str, gains: &[NamedGains]| {
            let rows = gain_rows(gains, PaperEnds::Absent).into_iter();
            rows.map(|row| row.in_part(part)).collect::<Vec<_>>()
        };
        let swept = (self.name)(self.swept);
        let volumes = format!("multiples of ResNet's calibrated volume, {swept}");
        let mut rows = gain_rows(&enforced, PaperEnds::Printed);
        rows.extend(under("nobody enforces priorities in hosts", &ignored));
        rows.extend(under(&volumes, &self.by_volume(options)?));
        rows.extend(drawn_rows(DRAWN_PART, &enforced, &["BERT", "ResNet"]));
        Ok(PaperReproduction {
            about: self.about.to_owned(),
            source: self.source.to_owned(),
            rows,
            assumptions: list_assumptions(self.placement),
            ..PaperReproduction::default()
        })
    }

    fn by_size(
        &self,
        priority: HostPriority,
        options: SeedOptions,
    ) -> Result<Vec<NamedGains>, CommandError> {
        let gains = |size| (self.case)(size, VOLUME, priority).measure_gains(options);
        self.sizes.iter().map(|size| Ok(((self.name)(*size), gains(*size)?))).collect()
    }

    /// The gains at each of [`VOLUMES`].
    fn by_volume(&self, options: SeedOptions) -> Result<Vec<NamedGains>, CommandError> {
        let case = |volume| (self.case)(self.swept, volume, HostPriority::Enforced);
        let gains = |volume| case(volume).measure_gains(options);
        VOLUMES.into_iter().map(|volume| Ok((format!("x {volume}"), gains(volume)?))).collect()
    }
}

/// Whether rows stand beside the ends of the ranges that the paper prints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PaperEnds {
    /// The mild end beside the first case, the strong one beside the last.
    Printed,
    Absent,
}

/// What Crux changes in each case, by measure.
fn gain_rows(cases: &[NamedGains], paper: PaperEnds) -> Vec<MeasureRow> {
    let measures: [RangedMeasure<CruxGain>; 3] = [
        ("GPU utilisation", CruxGain::utilisation_change, [9.5, 14.8]),
        ("completion of BERT", |gain| gain.change_of_mean("bert"), [-7.0, -33.0]),
        ("completion of ResNet", |gain| gain.change_of_mean("resnet"), [1.0, 3.0]),
    ];
    let rows = measures.into_iter().flat_map(|(name, value, [mild, strong])| {
        cases.iter().enumerate().map(move |(place, (case, gains))| {
            let printed = match place {
                0 => Some(mild),
                last if last + 1 == cases.len() => Some(strong),
                _ => None,
            };
            let printed = printed.filter(|_| paper == PaperEnds::Printed);
            MeasureRow::of_runs(format!("{name}, {case}"), "%", printed, (gains, value))
        })
    });
    rows.collect()
}

fn list_assumptions(placement: &str) -> Vec<String> {
    [
        placement,
        "Hosts: crux-testbed-hosts. PCIe and NICs serve higher levels first under Crux, as its \
         semaphores and traffic classes do; without Crux there is one level.",
        "BERT's volume as in crux-fig7. ResNet's volume is in no figure of the paper: 12.5 times \
         what its gradients suggest is the one number fitted to Figs. 21 and 22, and swept below.",
        "Paper: the range that it prints over both figures, the mild end beside the first case, \
         the strong end beside the last.",
        "No uplink of a leaf can fill. Computation takes within 1 % of the profile, by the seed; \
         all jobs begin together. The fluid model; completion is the mean iteration time.",
    ]
    .map(str::to_owned)
    .to_vec()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    const ONE: SeedOptions = SeedOptions { seed: 1, seeds: 1 };

    fn gain(case: &ContentionCase<'_>) -> CruxGain {
        case.measure_gains(ONE).unwrap().pop().unwrap()
    }

    #[test]
    fn crux_gains_on_pcie_links_and_bert_is_the_job_that_does() {
        let found = gain(&fig22_case(8, VOLUME, HostPriority::Enforced));
        let (change, bert) = (found.utilisation_change(), found.change_of_mean("bert"));
        assert!((4.5..=19.8).contains(&change), "{change}");
        assert!((-33.0..=-7.0).contains(&bert), "{bert}");
        let [without, with, alone] = found.utilisation();
        assert!(without < with && with <= alone);
    }

    #[test]
    fn without_enforcement_in_hosts_or_without_volume_there_is_nothing_to_gain() {
        let change = |case: &ContentionCase<'_>| gain(case).utilisation_change();
        let enforced = change(&fig22_case(8, VOLUME, HostPriority::Enforced));
        let ignored = change(&fig22_case(4, VOLUME, HostPriority::Ignored));
        assert!(ignored.abs() < 0.5 * enforced, "{ignored} {enforced}");
        let calibrated = change(&fig22_case(8, 1.0, HostPriority::Enforced));
        assert!(calibrated.abs() < 1.0, "{calibrated}");
    }

    /// Else ECMP's collisions would be in the figures.
    #[test]
    fn no_uplink_of_a_leaf_can_fill() {
        let fabric = testbed_fabric(HostPriority::Enforced).unwrap();
        for case in [
            fig21_case(4, VOLUME, HostPriority::Enforced),
            fig22_case(12, VOLUME, HostPriority::Enforced),
        ] {
            let documents = case.jobs.iter().map(|job| job.to_document(1).unwrap()).collect();
            let jobs = JobsDocument { jobs: documents }.resolve_jobs(&fabric, "jobs").unwrap().jobs;
            let mut senders: BTreeMap<_, BTreeSet<_>> = BTreeMap::new();
            let mut receivers = senders.clone();
            for flow in jobs.iter().flat_map(|job| &job.flows) {
                let [from, to] = [flow.src, flow.dst].map(|nic| fabric.leaf_of(nic));
                if from != to {
                    senders.entry(from).or_default().insert(flow.src);
                    receivers.entry(to).or_default().insert(flow.dst);
                }
            }
            // Two NICs of 200 Gb/s at most use the uplinks of a leaf: any one carries both.
            let both = senders.values().chain(receivers.values());
            assert!(both.map(BTreeSet::len).all(|nics| nics == 2), "{senders:?} {receivers:?}");
        }
    }
}
