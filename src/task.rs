//! The one record of an article and its publications: accepted, worked, settled.

pub mod marker;
pub mod state;
