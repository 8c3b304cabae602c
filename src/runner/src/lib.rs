//! The host program. Folders are its rooms; arrows go down this list and nobody points back up.

pub mod cli;
pub mod crash;
pub mod dispatch;
pub mod doctor;
pub mod duration;
pub mod embedded;
pub mod exit;
pub mod fleet;
pub mod gateway;
pub mod model;
pub mod observe;
pub mod project;
pub mod sandbox;
pub mod session;
pub mod state;
pub mod store;
pub mod tools;
pub mod trigger;
