//! The promises, one module each.

/// A hostile agent gets no further than its sandbox: an attack program, run as the agent in a real container.
mod attack;
