//! The order in which people number things: `eth2` is before `eth10`.

/// A name, ordered by its numbers.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct NaturalName<'a> {
    /// Texts and the numbers that follow them.
    parts: Vec<(&'a str, Option<u32>)>,
    text: &'a str,
}

impl<'a> NaturalName<'a> {
    /// The order of this name.
    pub fn of(text: &'a str) -> Self {
        let mut parts = Vec::new();
        let mut rest = text;
        while !rest.is_empty() {
            let digits = rest.find(|c: char| c.is_ascii_digit()).unwrap_or(rest.len());
            let (word, tail) = rest.split_at(digits);
            let end = tail.find(|c: char| !c.is_ascii_digit()).unwrap_or(tail.len());
            let (number, tail) = tail.split_at(end);
            parts.push((word, number.parse().ok()));
            rest = tail;
        }
        Self { parts, text }
    }

    /// As it is written.
    pub fn text(&self) -> &'a str {
        self.text
    }

    /// The number with which it ends.
    pub fn last_number(&self) -> Option<u32> {
        self.parts.last()?.1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_count_wherever_they_stand() {
        let mut names = ["w-10-b", "w-9-c", "v-11", "w-10-a", "w-1"];
        names.sort_by_key(|name| NaturalName::of(name));
        assert_eq!(names, ["v-11", "w-1", "w-9-c", "w-10-a", "w-10-b"]);
        let last = ["eth7", "eth7a"].map(|name| NaturalName::of(name).last_number());
        assert_eq!(last, [Some(7), None]);
    }
}
