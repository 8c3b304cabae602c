//! The sandbox's side of the link: whatever a host that has gone wrong sends, in pieces of any size.

#![no_main]

use libfuzzer_sys::fuzz_target;
use protocol::ToSandbox;

mod pieces;

fuzz_target!(|input: pieces::Input| pieces::decode::<ToSandbox>(&input));
