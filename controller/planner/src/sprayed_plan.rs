//! A plan that was made on trunks, in terms of the fabric as it is.

use topology::{Finding, LinkPath};

use crate::plan::{Plan, PlannedFlow};
use crate::refine::PathOrigin;
use crate::report::{LinkLoad, PlanReport};
use crate::trunks::TrunkedFabric;

impl TrunkedFabric {
    /// `plan` and `report`, made on this fabric, in terms of the original: its flows have no paths of
    /// their own.
    pub(crate) fn restore(&self, plan: Plan, report: PlanReport) -> (Plan, PlanReport) {
        (self.restore_plan(plan), self.restore_report(report))
    }

    fn restore_plan(&self, mut plan: Plan) -> Plan {
        let on_no_path =
            |flow: PlannedFlow| PlannedFlow { links: LinkPath::EMPTY, pinned: false, ..flow };
        plan.flows = plan.flows.into_iter().map(on_no_path).collect();
        plan.jobs.iter_mut().for_each(|job| job.sprayed = true);
        plan
    }

    fn restore_report(&self, mut report: PlanReport) -> PlanReport {
        for region in &mut report.comparison.regions {
            region.candidates.iter_mut().for_each(|of| of.paths = PathOrigin::Sprayed);
            region.candidates.dedup_by(|a, b| a.levels == b.levels);
        }
        let original = |load: LinkLoad| {
            let members = self.members_of(load.link).into_iter();
            members.map(move |link| LinkLoad { link, ..load.clone() })
        };
        report.links = report.links.into_iter().flat_map(original).collect();
        report.links.sort_by_key(|load| load.link);
        if !report.rationales.is_empty() {
            let text = "jobs are sprayed: their flows have no paths of their own, and links are not planned";
            report.findings.push(Finding::info("forwarding", text));
        }
        for rationale in &mut report.rationales {
            rationale.bottleneck =
                rationale.bottleneck.and_then(|link| self.members_of(link).first().copied());
        }
        report
    }
}
