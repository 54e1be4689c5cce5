//! The programs that plans are lowered for: ours, ours with tables of a few rows, and published
//! ones where `CRUX_SAI_P4` names a checkout of sonic-pins.

use std::path::Path;
use std::sync::LazyLock;

use p4::codec::{decode_entry, encode_entry};
use p4::entry::TableEntry;
use p4::sai::table;
use p4::{ForwardingPipeline, P4Info, SwitchTables};
use proptest::prelude::*;

use super::SaiBudget;

pub(super) fn p4info() -> &'static P4Info {
    &ForwardingPipeline::embedded_sai().p4info
}

/// The program with ACL tables of a few rows.
pub(super) static TIGHT: LazyLock<P4Info> = LazyLock::new(|| {
    let text = p4::artefacts::SAI.p4info.replacen("size: 254", "size: 4", 1);
    P4Info::parse(&text.replacen("size: 255", "size: 2", 1)).unwrap()
});

static PUBLISHED: LazyLock<Vec<(&str, P4Info)>> = LazyLock::new(|| {
    let Some(checkout) = std::env::var_os("CRUX_SAI_P4") else {
        return Vec::new();
    };
    let folder = Path::new(&checkout).join("sai_p4/instantiations/google");
    let programs = ["middleblock", "tor"].map(|name| {
        let text = std::fs::read_to_string(folder.join(format!("{name}.p4info.pb.txt")));
        (name, P4Info::parse(&text.unwrap()).unwrap())
    });
    Vec::from(programs)
});

pub(super) fn programs() -> Vec<&'static P4Info> {
    let published = PUBLISHED.iter().map(|(_, program)| program);
    [(p4info()), &*TIGHT].into_iter().chain(published).collect()
}

/// Every row is one of the program when it has been encoded: its fields, actions and widths exist.
pub(super) fn check_encoding(program: &P4Info, tables: &SwitchTables) -> Result<(), TestCaseError> {
    for row in tables.iter() {
        let row = TableEntry::from(row);
        let decoded = decode_entry(program, &encode_entry(&row));
        prop_assert_eq!(decoded.as_ref(), Ok(&row));
    }
    Ok(())
}

#[test]
fn tight_tables_are_tight() {
    let budget = SaiBudget::from_program(&TIGHT);
    assert_eq!((budget.port_classes, budget.redirects, budget.job_levels), (4, 2, 255));
}

/// The fixed tables have the ids, fields and actions of the published ones, and no more rows.
#[test]
fn fixed_tables_are_those_that_are_published() {
    let fixed = super::super::FIXED_TABLES.into_iter();
    let fixed = fixed.chain([table::NEIGHBOR, table::L3_ADMIT, table::IPV6]);
    for ((name, program), id) in
        PUBLISHED.iter().flat_map(|one| fixed.clone().map(move |id| (one, id)))
    {
        let [ours, theirs] = [(p4info()), program].map(|program| program.table(id).unwrap());
        assert_eq!((&ours.name, &ours.fields), (&theirs.name, &theirs.fields), "{name}");
        for action in &ours.row_actions {
            let [ours, theirs] =
                [(p4info()), program].map(|program| program.action(*action).unwrap());
            assert_eq!((&ours.name, &ours.params), (&theirs.name, &theirs.params), "{name}");
        }
    }
}

#[test]
fn published_programs_have_pins_and_no_levels() {
    for (name, program) in PUBLISHED.iter() {
        let budget = SaiBudget::from_program(program);
        let is_tor = *name == "tor";
        let [port_classes, groups, members] =
            if is_tor { [125, 960, 256] } else { [254, 3968, 512] };
        let expected = SaiBudget {
            vrfs: 64,
            port_classes,
            redirects: 255,
            job_levels: 0,
            routes: 17_000,
            groups,
            group_members: members,
            names_jobs: false,
        };
        assert_eq!(budget, expected, "{name}");
    }
}
