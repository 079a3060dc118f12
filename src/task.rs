//! The one record of an article and its publications: accepted, worked, settled.

pub mod accept;
pub mod act;
pub mod audit;
pub mod marker;
pub mod pull;
pub mod report;
pub mod run;
pub mod scribe;
pub mod settle;
pub mod state;
pub mod steps;
pub mod sweep;
mod warnings;
pub mod work;
