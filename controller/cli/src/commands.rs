//! The commands of an operator, one module each: arguments and a function that runs them.

pub(crate) mod audit;
pub(crate) mod cert;
pub(crate) mod cluster;
mod command_reference;
mod comparison_table;
pub(crate) mod completions;
pub(crate) mod config;
pub(crate) mod context;
pub(crate) mod controller;
pub(crate) mod doctor;
pub(crate) mod drain;
pub(crate) mod events;
pub(crate) mod fabric;
pub(crate) mod flows;
mod identity_folder;
pub(crate) mod init;
pub(crate) mod jobs;
mod local_time;
pub(crate) mod man;
pub(crate) mod plan;
pub(crate) mod policy;
pub(crate) mod replay_incident;
pub(crate) mod report;
pub(crate) mod schema;
pub(crate) mod state;
pub(crate) mod status;
pub(crate) mod top;
