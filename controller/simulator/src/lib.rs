//! Simulates a cluster's jobs under the planner or a baseline, and reports what they achieve.
