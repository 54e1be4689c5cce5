//! What a job of a trace does on its GPUs: the model it trains, as a job that the planner knows.
//!
//! A trace says how many GPUs a job had, seldom which model. A [`Mix`] draws models for jobs that
//! have none (or whose names were drawn at random by the authors of the trace); a [`Model`] of the
//! built-in table or of the user's own says what one iteration computes and sends; with the GPUs
//! that placement gives, [`Model::document`] makes the job document that the planner resolves.
//! Volumes on the wire follow from the planner's collectives: there is no second formula here.

mod mix;
mod model;

pub use mix::Mix;
pub use model::{Model, Models, ModelsError, Parallelism};
