//! The promises, one module each.
