//! No process of a finished call survives.
