//! CASSINI's affinity graph (its section 4.1 and Algorithm 1): jobs on one side, the links that
//! they share on the other, and the shift of a job on a link as the weight of the edge.
//!
//! Only differences of shifts on one link matter, so one job's shift gives those of all jobs that
//! it reaches: breadth-first from a root with shift 0,
//! `t_k = (t_j - w_{j,l} + w_{k,l}) mod iter_k`. Where the graph has a loop, a job is reached
//! twice and the two answers need not agree; hence graphs with loops are no candidates.

use std::collections::VecDeque;

use topology::groups::DisjointSets;

/// A link that jobs share, with the best shift of each there.
#[derive(Clone, Debug, PartialEq)]
pub struct SharedLink {
    /// The jobs, two or more.
    pub jobs: Vec<usize>,
    /// Their shifts on this link, in seconds.
    pub shifts: Vec<f64>,
    /// The demand over its capacity without shifts; orders links by how much they matter.
    pub contention: f64,
}

/// The graph has a loop, and no shifts serve all its links.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("the affinity graph has a loop through job {job}")]
pub struct AffinityLoop {
    /// A job on it.
    pub job: usize,
    /// The shifts that the first way to each job gives.
    pub partial: Vec<f64>,
}

/// The shift of every job, each within its `periods`; jobs that share nothing have none.
///
/// # Errors
/// A job that is reached in two ways.
pub fn assign_shifts(links: &[SharedLink], periods: &[f64]) -> Result<Vec<f64>, AffinityLoop> {
    let mut found: Vec<Option<f64>> = vec![None; periods.len()];
    let mut loops = None;
    let mut is_done = vec![false; links.len()];
    for root in 0..periods.len() {
        if found[root].is_some() {
            continue;
        }
        found[root] = Some(0.0);
        let mut queue = VecDeque::from([root]);
        while let Some(job) = queue.pop_front() {
            for (link, done) in links.iter().zip(&mut is_done) {
                let Some(place) = link.jobs.iter().position(|other| *other == job && !*done) else {
                    continue;
                };
                *done = true;
                let base = found[job].unwrap_or(0.0) - link.shifts[place];
                for (other, shift) in link.jobs.iter().zip(&link.shifts) {
                    match found[*other] {
                        _ if *other == job => {}
                        Some(_) => loops = loops.or(Some(*other)),
                        None => {
                            found[*other] = Some((base + shift).rem_euclid(periods[*other]));
                            queue.push_back(*other);
                        }
                    }
                }
            }
        }
    }
    let shifts = found.into_iter().map(|shift| shift.unwrap_or(0.0));
    let partial: Vec<f64> = shifts.collect();
    match loops {
        None => Ok(partial),
        Some(job) => Err(AffinityLoop { job, partial }),
    }
}

/// The links without those that would close a loop, the most contended kept first, and how many
/// were left out.
pub fn drop_loops(mut links: Vec<SharedLink>) -> (Vec<SharedLink>, usize) {
    let all = links.len();
    let jobs = links.iter().flat_map(|link| &link.jobs).max();
    let mut connected = DisjointSets::new(jobs.map_or(0, |last| last + 1));
    links.sort_by(|a, b| {
        let by_contention = b.contention.total_cmp(&a.contention);
        by_contention.then_with(|| a.jobs.cmp(&b.jobs))
    });
    links.retain(|link| join_as_tree(&mut connected, &link.jobs));
    let dropped = all - links.len();
    (links, dropped)
}

/// Connects `jobs`, unless two of them are connected already: that would close a loop.
fn join_as_tree(connected: &mut DisjointSets, jobs: &[usize]) -> bool {
    let mut roots: Vec<usize> = jobs.iter().map(|job| connected.find_root(*job)).collect();
    roots.sort_unstable();
    let is_tree = roots.windows(2).all(|pair| pair[0] != pair[1]);
    if is_tree {
        roots.windows(2).for_each(|pair| {
            connected.join(pair[0], pair[1]);
        });
    }
    is_tree
}

#[cfg(test)]
mod tests;
