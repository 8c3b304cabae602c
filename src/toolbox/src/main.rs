//! The program inside the container: PID 1, its file servers and the transport tools.
//!
//! It cannot link the Docker client, HTTP, a database or a model; `protocol` is all it shares with the host.

mod files;
mod pid1;
mod session;

fn main() {
    pid1::main();
}
