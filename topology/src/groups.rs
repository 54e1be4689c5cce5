//! Disjoint sets of dense indices (union-find): jobs joined by the links they share, nodes by
//! edges.
//!
//! The decision: a set is represented by its smallest member, so results do not depend on the order
//! in which members were joined.

/// Disjoint sets of the indices `0..members`.
#[derive(Clone, Debug)]
pub struct DisjointSets {
    /// Towards the smallest member of each set.
    parents: Vec<usize>,
}

impl DisjointSets {
    /// Every index in a set of its own.
    pub fn new(members: usize) -> Self {
        Self { parents: (0..members).collect() }
    }

    /// The smallest member of the set that contains `member`.
    #[inline]
    pub fn find_root(&mut self, mut member: usize) -> usize {
        while self.parents[member] != member {
            // Path halving: every other member on the way skips one parent.
            self.parents[member] = self.parents[self.parents[member]];
            member = self.parents[member];
        }
        member
    }

    /// Joins the sets of `a` and `b`; false if they are one already.
    #[inline]
    pub fn join(&mut self, a: usize, b: usize) -> bool {
        let (a, b) = (self.find_root(a), self.find_root(b));
        self.parents[a.max(b)] = a.min(b);
        a != b
    }

    /// All sets, by smallest member; the members of each ascend.
    pub fn into_sets(mut self) -> Vec<Vec<usize>> {
        let mut sets: Vec<Vec<usize>> = vec![Vec::new(); self.parents.len()];
        for member in 0..self.parents.len() {
            sets[self.find_root(member)].push(member);
        }
        sets.retain(|set| !set.is_empty());
        sets
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_are_known_by_their_smallest_member() {
        let mut sets = DisjointSets::new(6);
        assert!(sets.join(5, 3) && sets.join(4, 5) && sets.join(2, 0));
        assert!(!sets.join(3, 4));
        assert_eq!([sets.find_root(4), sets.find_root(2), sets.find_root(1)], [3, 0, 1]);
        assert_eq!(sets.into_sets(), [vec![0, 2], vec![1], vec![3, 4, 5]]);
    }
}
