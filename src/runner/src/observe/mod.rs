//! What people and machines see of the runner's work: logs, and the sanitiser for everything shown.

pub mod logging;
pub mod sanitise;
