//! `read`, `write`, `ls`, and copies in and out.
