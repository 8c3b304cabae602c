//! `bash` does what its contract says.
