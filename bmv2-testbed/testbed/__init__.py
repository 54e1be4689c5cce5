"""A fabric of Crux in network namespaces: Mininet, real switches, emulated jobs."""
