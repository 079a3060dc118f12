//! The one record of an article and its publications: accepted, worked, settled.

pub mod accept;
pub mod act;
pub mod marker;
pub mod report;
pub mod run;
pub mod settle;
pub mod state;
pub mod steps;
pub mod sweep;
pub mod work;
