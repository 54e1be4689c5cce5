//! Example fabrics, by name: the documents of `topology/fabrics`, each with its source and what was
//! chosen where the source is silent.

use crate::document::{self, DocumentError, DocumentFormat};
use crate::spec::FabricDocument;

/// Name and TOML text of each example.
pub const EXAMPLES: [(&str, &str); 5] = [
    ("lab", include_str!("../fabrics/lab.toml")),
    ("crux-testbed", include_str!("../fabrics/crux-testbed.toml")),
    ("crux-testbed-hosts", include_str!("../fabrics/crux-testbed-hosts.toml")),
    ("crux-clos-173x16", include_str!("../fabrics/crux-clos-173x16.toml")),
    ("crux-double-sided", include_str!("../fabrics/crux-double-sided.toml")),
];

/// TOML text of an example, for [`parse_fabric`](crate::spec::parse_fabric).
pub fn example_text(name: &str) -> Option<&'static str> {
    EXAMPLES.iter().find(|(known, _)| *known == name).map(|&(_, text)| text)
}

/// The document of an example, to be changed before it becomes a fabric; an empty document if there
/// is no example of that name.
///
/// # Errors
/// The text is no document.
pub fn example_document(name: &str) -> Result<FabricDocument, DocumentError> {
    let text = example_text(name).unwrap_or_default();
    document::parse_document(text, DocumentFormat::Toml, name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::DocumentFormat;
    use crate::{Severity, check_fabric, spec};

    #[test]
    fn every_example_is_a_fabric_without_errors_or_warnings() {
        for (name, text) in EXAMPLES {
            let fabric = spec::parse_fabric(text, DocumentFormat::Toml, name).unwrap();
            assert_eq!(fabric.name(), name);
            let findings = check_fabric(&fabric);
            let worst = findings.iter().filter(|finding| finding.severity != Severity::Info);
            assert_eq!(worst.collect::<Vec<_>>(), Vec::<&crate::Finding>::new(), "{name}");
        }
    }

    #[test]
    fn examples_have_the_numbers_of_their_sources() {
        let sizes = |name: &str| {
            let fabric =
                spec::parse_fabric(example_text(name).unwrap(), DocumentFormat::Toml, name)
                    .unwrap();
            (fabric.switches().len(), fabric.hosts().len(), fabric.nics().len())
        };
        assert_eq!(sizes("lab"), (6, 12, 12));
        assert_eq!(sizes("crux-testbed"), (8, 12, 48));
        assert_eq!(sizes("crux-testbed-hosts"), (8, 12, 48));
        assert_eq!(sizes("crux-clos-173x16"), (173 + 16, 346, 1384));
        assert_eq!(sizes("crux-double-sided"), (6 + 12 + 32, 186, 1488));
    }
}
