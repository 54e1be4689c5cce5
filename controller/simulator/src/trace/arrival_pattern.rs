//! The rhythm of arrivals: how many jobs come in each hour of a week.
//!
//! Real clusters are not Poisson: jobs come in bursts, more by night in Philly's clock than by day.
//! A rhythm keeps that and forgets everything else of the trace it was taken from.

/// Hours of a week.
const HOURS: usize = 7 * 24;

/// Submissions by hour of the week, from Monday 00:00 in the clock of the trace: all 82,247 jobs of
/// Philly (2017-09-04 to 12-22), counted from msr-fiddle/philly-traces as published with AdaptDL
/// (petuum/adaptdl, branch osdi21-artifact, simulator/traces/philly.csv). The Philly data are
/// Microsoft's, CC-BY-4.0.
#[rustfmt::skip]
const PHILLY: [u32; HOURS] = [
    // Monday
    139, 329, 662, 541, 534, 727, 1454, 832, 605, 303, 356, 140,
    164, 262, 196, 114, 171, 293, 394, 296, 567, 426, 350, 281,
    // Tuesday
    343, 910, 805, 544, 424, 338, 752, 751, 633, 685, 810, 602,
    400, 327, 354, 271, 651, 370, 529, 413, 363, 331, 405, 517,
    // Wednesday
    1307, 680, 389, 241, 306, 361, 382, 890, 345, 396, 533, 591,
    219, 367, 330, 657, 226, 262, 840, 606, 513, 1148, 937, 844,
    // Thursday
    1020, 553, 465, 1008, 300, 613, 1190, 1571, 1151, 750, 922, 365,
    398, 363, 200, 269, 400, 373, 368, 363, 311, 490, 601, 1070,
    // Friday
    1174, 450, 850, 1039, 601, 1175, 882, 1398, 739, 613, 669, 1021,
    679, 587, 141, 206, 610, 698, 404, 561, 1290, 349, 560, 258,
    // Saturday
    226, 200, 146, 305, 140, 242, 361, 301, 181, 594, 125, 170,
    486, 405, 382, 191, 703, 121, 91, 140, 256, 164, 844, 383,
    // Sunday
    158, 252, 518, 102, 95, 494, 711, 1416, 148, 106, 95, 90,
    221, 104, 582, 516, 260, 172, 118, 117, 183, 234, 188, 108,
];

/// Jobs in the hour that begins at `hour` hours from the start of a week; weeks repeat.
pub(super) fn jobs_in_hour(hour: usize) -> u32 {
    PHILLY[hour % HOURS]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_week_of_philly_is_all_its_jobs() {
        assert_eq!((0..HOURS).map(jobs_in_hour).sum::<u32>(), 82_247);
        assert_eq!(jobs_in_hour(HOURS + 1), jobs_in_hour(1));
    }
}
