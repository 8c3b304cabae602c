//! The host's side of the link: whatever a compromised PID 1 sends, in pieces of any size.

#![no_main]

use libfuzzer_sys::fuzz_target;
use protocol::FromSandbox;

mod pieces;

fuzz_target!(|input: pieces::Input| pieces::decode::<FromSandbox>(&input));
