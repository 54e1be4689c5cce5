//! The embedded P4Runtime switch and the in-process fabric.
