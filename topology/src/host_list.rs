//! Lists of hosts as Slurm writes them: `gpu[01-03,07],login` (`SLURM_JOB_NODELIST`, `sinfo -N`).
//!
//! A name may have several pairs of brackets with numbers and ranges, `rack[0-1]_blade[0-1]`; the
//! last one counts fastest. Digits keep their width. The decision: a list has limits, which are
//! checked before it is expanded, since `n[1-999999999]` is short to write.

/// Hosts that a list may name.
pub const MAX_HOSTS: usize = 65_536;
/// Bytes of a name with brackets; longer than any name of DNS.
const MAX_NAME: usize = 255;
/// Digits of a number in brackets.
const MAX_DIGITS: usize = 9;

/// Why a list of hosts cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HostListError {
    /// A bracket is not closed, or closed without being opened.
    #[error("invalid host list `{0}`: unbalanced brackets")]
    Brackets(String),
    /// A range is not `FIRST-LAST` with digits.
    #[error("invalid range `{0}` in a host list: expected a number or FIRST-LAST")]
    Range(String),
    /// The list is too long.
    #[error("a host list names more than {MAX_HOSTS} hosts")]
    TooMany,
    /// A name with brackets is too long.
    #[error("a name in a host list has more than {MAX_NAME} bytes: `{0}`")]
    LongName(String),
}

/// All hosts of a list, in its order.
///
/// # Errors
/// The list is not written as above, or names more than [`MAX_HOSTS`].
pub fn expand_host_list(list: &str) -> Result<Vec<String>, HostListError> {
    let mut hosts = Vec::new();
    for entry in split_entries(list)? {
        expand_entry(entry, &mut hosts)?;
        if hosts.len() > MAX_HOSTS {
            return Err(HostListError::TooMany);
        }
    }
    Ok(hosts)
}

/// A list of these hosts, names with equal beginnings and consecutive numbers together.
pub fn compress_host_list<'a>(hosts: impl IntoIterator<Item = &'a str>) -> String {
    let mut groups: Vec<HostGroup<'a>> = Vec::new();
    for host in hosts {
        let (prefix, digits) = split_number(host);
        match groups.last_mut().filter(|group| !digits.is_empty() && group.fits(prefix, digits)) {
            Some(group) => group.add(digits),
            None => groups.push(HostGroup::new(prefix, digits)),
        }
    }
    groups.iter().map(HostGroup::written).collect::<Vec<_>>().join(",")
}

/// Entries between the commas that are outside of brackets.
fn split_entries(list: &str) -> Result<Vec<&str>, HostListError> {
    let unbalanced = || HostListError::Brackets(shortened(list));
    let (mut entries, mut start, mut is_open) = (Vec::new(), 0, false);
    for (at, character) in list.char_indices() {
        match character {
            '[' if is_open => return Err(unbalanced()),
            '[' => is_open = true,
            ']' if !is_open => return Err(unbalanced()),
            ']' => is_open = false,
            ',' if !is_open => {
                entries.push(&list[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    if is_open {
        return Err(unbalanced());
    }
    entries.push(&list[start..]);
    Ok(entries.into_iter().map(str::trim).filter(|entry| !entry.is_empty()).collect())
}

fn expand_entry(entry: &str, hosts: &mut Vec<String>) -> Result<(), HostListError> {
    let (first_text, groups) = split_groups(entry)?;
    if groups.is_empty() {
        hosts.push(entry.to_owned());
        return Ok(());
    }
    let longest = |group: &NumberedText<'_>| {
        let digits = group.ranges.iter().map(|range| range.longest).max();
        digits.unwrap_or_default() + group.text.len()
    };
    if first_text.len() + groups.iter().map(longest).sum::<usize>() > MAX_NAME {
        return Err(HostListError::LongName(shortened(entry)));
    }
    let numbers =
        |group: &NumberedText<'_>| -> u64 { group.ranges.iter().map(PaddedRange::count).sum() };
    let named = groups.iter().map(numbers).fold(1, u64::saturating_mul);
    if named > MAX_HOSTS.saturating_sub(hosts.len()) as u64 {
        return Err(HostListError::TooMany);
    }
    let mut names = vec![first_text.to_owned()];
    for NumberedText { ranges, text } in groups {
        let numbered = names.iter().flat_map(|name| {
            let numbers = ranges.iter().flat_map(PaddedRange::numbers);
            numbers.map(move |number| format!("{name}{number}{text}"))
        });
        names = numbered.collect();
    }
    hosts.append(&mut names);
    Ok(())
}

/// Numbers in brackets, and the text up to the next bracket.
struct NumberedText<'a> {
    ranges: Vec<PaddedRange>,
    text: &'a str,
}

/// `FIRST-LAST`, written with at least as many digits as `FIRST`.
struct PaddedRange {
    first: u64,
    last: u64,
    /// Fewest and most digits of a number.
    width: usize,
    longest: usize,
}

impl PaddedRange {
    fn parse(text: &str) -> Result<Self, HostListError> {
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let (width, longest) = (first.len(), first.len().max(last.len()));
        let numbers = parse_digits(first).zip(parse_digits(last));
        let (first, last) = numbers
            .filter(|(first, last)| first <= last)
            .ok_or_else(|| HostListError::Range(shortened(text)))?;
        Ok(Self { first, last, width, longest })
    }

    fn count(&self) -> u64 {
        self.last - self.first + 1
    }

    fn numbers(&self) -> impl Iterator<Item = String> {
        let width = self.width;
        (self.first..=self.last).map(move |number| format!("{number:0width$}"))
    }
}

/// The text before the first bracket, and what follows. Brackets are balanced.
fn split_groups(entry: &str) -> Result<(&str, Vec<NumberedText<'_>>), HostListError> {
    let mut parts = entry.split('[');
    let first_text = parts.next().unwrap_or_default();
    let groups = parts.map(|part| {
        let (ranges, text) = part.split_once(']').unwrap_or((part, ""));
        let ranges = ranges.split(',').map(PaddedRange::parse).collect::<Result<_, _>>()?;
        Ok(NumberedText { ranges, text })
    });
    Ok((first_text, groups.collect::<Result<_, _>>()?))
}

fn parse_digits(text: &str) -> Option<u64> {
    let is_number =
        (1..=MAX_DIGITS).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_digit());
    is_number.then(|| text.parse().ok()).flatten()
}

fn shortened(text: &str) -> String {
    text.chars().take(80).collect()
}

/// The digits at the end of a name, as many as a number in brackets may have.
fn split_number(host: &str) -> (&str, &str) {
    let digits = host.bytes().rev().take_while(u8::is_ascii_digit).take(MAX_DIGITS).count();
    host.split_at(host.len() - digits)
}

/// Names with one beginning, and numbers of one width.
struct HostGroup<'a> {
    prefix: &'a str,
    width: usize,
    /// First and last number of each range; none for a name without a number.
    ranges: Vec<NumberRange>,
    /// A range begins with zeros, so that all numbers need one width.
    is_padded: bool,
}

struct NumberRange {
    first: u64,
    last: u64,
}

impl<'a> HostGroup<'a> {
    fn new(prefix: &'a str, digits: &str) -> Self {
        let mut group = Self { prefix, width: digits.len(), ranges: Vec::new(), is_padded: false };
        if !digits.is_empty() {
            group.add(digits);
        }
        group
    }

    fn fits(&self, prefix: &str, digits: &str) -> bool {
        let has_numbers = !self.ranges.is_empty();
        // `9` and `10` are numbers of one list; `09` and `10` have one width.
        let is_longer = digits.len() > self.width && !digits.starts_with('0');
        let grows = is_longer && !self.is_padded;
        has_numbers && self.prefix == prefix && (self.width == digits.len() || grows)
    }

    fn add(&mut self, digits: &str) {
        let number = parse_digits(digits).unwrap_or_default();
        match self.ranges.last_mut() {
            Some(range) if range.last + 1 == number => range.last = number,
            _ => {
                self.is_padded |= number.to_string().len() < self.width;
                self.ranges.push(NumberRange { first: number, last: number });
            }
        }
    }

    fn written(&self) -> String {
        let width = self.width;
        let ranges: Vec<String> = self
            .ranges
            .iter()
            .map(|range| match range.first == range.last {
                true => format!("{:0width$}", range.first),
                false => format!("{:0width$}-{:0width$}", range.first, range.last),
            })
            .collect();
        match &ranges[..] {
            [] => self.prefix.to_owned(),
            [one] if !one.contains('-') => format!("{}{one}", self.prefix),
            several => format!("{}[{}]", self.prefix, several.join(",")),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn lists_of_slurm_are_expanded() {
        let cases = [
            ("h1", "h1"),
            ("gpu[01-03,07],login", "gpu01 gpu02 gpu03 gpu07 login"),
            ("a[9-11]-ib,b", "a9-ib a10-ib a11-ib b"),
            (" h1 , h2,", "h1 h2"),
            ("r[1-2]n[08-10]", "r1n08 r1n09 r1n10 r2n08 r2n09 r2n10"),
            ("a[1,3][0-1]-b[7],c", "a10-b7 a11-b7 a30-b7 a31-b7 c"),
            ("[1-2]x[3]y[4]z", "1x3y4z 2x3y4z"),
            ("", ""),
        ];
        for (list, hosts) in cases {
            assert_eq!(expand_host_list(list).unwrap().join(" "), hosts, "{list}");
        }
    }

    #[test]
    fn lists_that_make_no_sense_are_refused() {
        let cases = [
            ("a[1-2", "unbalanced"),
            ("a]1", "unbalanced"),
            ("a[1[2]]", "unbalanced"),
            ("a[1]2]", "unbalanced"),
            ("a[1]b[]", "expected a number"),
            ("a[1]b[x]", "expected a number"),
            ("a[1-300]b[1-300]", "more than"),
            ("a[1-60000],b[1-60]c[1-600]", "more than"),
            ("a[3-1]", "expected a number"),
            ("a[x]", "expected a number"),
            ("a[1-999999999]", "more than"),
            ("a[1-60000],b[1-60000]", "more than"),
        ];
        for (list, text) in cases {
            let error = expand_host_list(list).unwrap_err().to_string();
            assert!(error.contains(text), "{list}: {error}");
        }
    }

    /// Each pair of brackets doubles the names, or makes all of them longer.
    #[test]
    fn brackets_are_bounded_before_they_are_expanded() {
        assert_eq!(expand_host_list(&"[0-1]".repeat(16)).unwrap().len(), MAX_HOSTS);
        assert_eq!(expand_host_list(&"[0-1]".repeat(20)), Err(HostListError::TooMany));
        let long = format!("n[0-65535]{}", "[7]".repeat(100_000));
        assert!(matches!(expand_host_list(&long), Err(HostListError::LongName(_))));
    }

    #[test]
    fn hosts_are_written_shortly() {
        let written = |hosts: &[&str]| compress_host_list(hosts.iter().copied());
        assert_eq!(written(&["h1", "h2", "h3", "h7"]), "h[1-3,7]");
        assert_eq!(written(&["h8", "h9", "h10"]), "h[8-10]");
        assert_eq!(written(&["gpu01", "gpu02", "x", "gpu3"]), "gpu[01-02],x,gpu3");
        assert_eq!(written(&["login", "h1"]), "login,h1");
        assert_eq!(written(&[]), "");
    }

    /// Numbers ten apart are a range each; a look at all ranges for each host took minutes.
    #[test]
    fn as_many_ranges_as_hosts_are_written() {
        let hosts = expand_host_list("n[00-65000]0").unwrap();
        let list = compress_host_list(hosts.iter().map(String::as_str));
        assert_eq!(expand_host_list(&list).unwrap(), hosts);
    }

    proptest! {
        /// Lists are read back as written, and no text panics.
        #[test]
        fn writing_is_undone_by_reading(
            hosts in prop::collection::vec("[a-c]{1,2}(0?[0-9]{1,3})?", 0..40),
            text in "\\PC{0,40}",
        ) {
            let list = compress_host_list(hosts.iter().map(String::as_str));
            prop_assert_eq!(expand_host_list(&list), Ok(hosts));
            let _either = expand_host_list(&text);
            let _either = expand_host_list(&format!("a[{text}]"));
            let _either = expand_host_list(&format!("a[1-2]{text}[3-4]"));
        }
    }
}
