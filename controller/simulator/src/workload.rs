//! What a job of a trace does on its GPUs: the model it trains, as a job that the planner knows.
//!
//! A trace says how many GPUs a job had, seldom which model. A [`ModelMix`] draws models for jobs that
//! have none (or whose names were drawn at random by the authors of the trace); a [`TrainingModel`] of the
//! built-in table or of the user's own says what one iteration computes and sends; with the GPUs
//! that placement gives, [`TrainingModel::job_document`] makes the job document that the planner resolves.
//! Volumes on the wire follow from the planner's collectives: there is no second formula here.

mod model_mix;
mod models;

pub use model_mix::ModelMix;
pub use models::{ModelParallelism, ModelTable, ModelTableError, TrainingModel};
