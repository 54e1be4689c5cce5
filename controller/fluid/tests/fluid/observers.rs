//! Observers see every instant, and seeing changes nothing.

use fluid::{JobIndex, JobPhase, RunInstant};

use crate::scenario::{engine, flow, job, totals};

#[test]
fn rates_and_phases_as_they_change() {
    // J0 computes 1 s, then sends 20 bytes at 10 bytes/s. J1 sends 25 bytes from the start in the
    // lower level: 10 in [0,1), nothing until 3, then the other 15 until 4.5 but for [4, 4.5)..:
    // J0 computes again in [3,4) and sends in [4,6), so J1 sends 10 in [3,4) and 5 in [6,6.5).
    let jobs = [job(1, 1.0, vec![flow(&[0], 20.0)]), job(0, 0.0, vec![flow(&[0], 25.0)])];
    let mut watched = engine(&[10.0], &jobs);
    let (mut rates, mut phases) = (Vec::new(), Vec::new());
    let mut observer = |instant: &RunInstant<'_>| {
        for rate in instant.link_rates() {
            rates.push((instant.seconds(), rate.level, rate.bytes_per_second));
        }
        let own = instant.phase_changes().filter(|(job, _)| *job == JobIndex(0));
        phases.extend(own.map(|(_, phase)| (instant.seconds(), phase)));
    };
    watched.run_observed(5.0, &mut observer).unwrap();
    assert_eq!(
        rates,
        [
            (0.0, 0, 10.0),
            (1.0, 1, 10.0),
            (1.0, 0, 0.0),
            (3.0, 1, 0.0),
            (3.0, 0, 10.0),
            (4.0, 1, 10.0),
            (4.0, 0, 0.0),
        ]
    );
    assert_eq!(
        phases,
        [
            (0.0, JobPhase::Computing),
            (1.0, JobPhase::Communicating),
            (3.0, JobPhase::Draining),
            (3.0, JobPhase::Computing),
            (4.0, JobPhase::Communicating),
        ]
    );
    let mut unwatched = engine(&[10.0], &jobs);
    unwatched.run_until(5.0).unwrap();
    assert_eq!(totals(&watched), totals(&unwatched));
    assert_eq!(watched.event_count(), 4, "at 0, 1, 3 and 4 s");
}

#[test]
fn flows_are_seen_as_groups() {
    let mut watched = engine(&[10.0, 10.0], &[job(0, 1.0, vec![flow(&[0, 1], 10.0); 2])]);
    let mut seen = Vec::new();
    let mut observer = |instant: &RunInstant<'_>| {
        for rate in instant.flow_rates() {
            seen.push((instant.seconds(), rate.path, rate.flows, rate.bytes_per_second));
        }
    };
    watched.run_observed(3.0, &mut observer).unwrap();
    assert_eq!(seen, [(1.0, vec![0, 1], 2, 10.0), (3.0, vec![0, 1], 2, 0.0)]);
}
