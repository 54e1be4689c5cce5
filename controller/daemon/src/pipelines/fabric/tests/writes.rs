//! The writes of one switch, one by one.

use p4::diff_tables;

use super::*;

/// Two parts of the changes of a case: those before the writes, and those after them.
fn two_states(case: &Case, of_first: u8, of_second: u8) -> [Fabric; 2] {
    let some = |bits: u8| {
        let changes = case.changes.iter().enumerate();
        changes.filter(move |(at, _)| bits >> (at % 8) & 1 == 1).map(|(_, change)| *change)
    };
    [of_first, of_second].map(|bits| case.fabric.with_changes(some(bits)))
}

proptest! {
    /// From any failures to any others, at the last switch to be written: where all packets between
    /// two NICs arrive before its writes and after them, with a pin and without, they arrive after
    /// every single one.
    #[test]
    fn packets_arrive_after_every_single_write(
        case in cases(),
        (of_first, of_second) in any::<(u8, u8)>(),
        at in any::<prop::sample::Index>(),
    ) {
        let fabrics = two_states(&case, of_first, of_second);
        let plans = [plan(&fabrics[0], &case.jobs), plan(&fabrics[1], &case.jobs)];
        let [before, after] = [0, 1].map(|at: usize| lowered(&fabrics[at], &plans[at]));
        let mut tables = after.clone();
        let written = SwitchId::from(at.index(tables.len()));
        let p4info = &ForwardingPipeline::embedded_fabric().p4info;
        let updates = diff_tables(p4info, &after[&written], &before[&written]);
        let arrives = |tables: &BTreeMap<_, _>, (packet, choice): &(Packet, usize)| {
            walk(&fabrics[1], tables, packet, *choice)
        };
        let mut packets = packets_of(&fabrics[1], &plans[1]);
        for state in [&after, &before] {
            tables.insert(written, state[&written].clone());
            let lost = packets.iter().filter(|packet| arrives(&tables, packet).is_err());
            let lost: BTreeSet<_> = lost.map(|(packet, _)| (packet.src, packet.dst)).collect();
            packets.retain(|(packet, _)| !lost.contains(&(packet.src, packet.dst)));
        }
        for update in &updates {
            Arc::make_mut(tables.get_mut(&written).unwrap()).apply([update]);
            references::check_references(&tables[&written])?;
            for packet in &packets {
                let arrived = arrives(&tables, packet);
                prop_assert!(arrived.is_ok(), "{arrived:?} after {}", p4info.display(update));
            }
        }
        prop_assert_eq!(&tables[&written], &after[&written]);
    }
}
