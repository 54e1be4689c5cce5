//! fabric.p4, its compiled artefacts, table entries, diff and apply.
