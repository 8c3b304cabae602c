//! The program `runner`.

fn main() {}
