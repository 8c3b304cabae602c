//! A sandbox that breaks the rules is ended, whatever rule it is.

use std::time::Duration;

use proptest::prelude::*;
use protocol::frame::MAX_PAYLOAD;
use protocol::{
    CallState, Entry, EntryKind, Facts, FromSandbox, Hello, INITIAL_CREDIT, Known, OLDEST, Outcome, Role, VERSION,
};
use tokio::io::AsyncWriteExt;
use tokio::time::timeout;

use super::scripted::{Peer, bash_end, control_hello, frame, hello};
use super::{Place, bash, read, timing};
use crate::sandbox::call::{CallError, Gone, GoneKind};
use crate::sandbox::facts;
use crate::sandbox::link::Link;
use crate::sandbox::terms::Timing;

async fn end_of(link: &Link) -> Gone {
    timeout(Duration::from_secs(10), link.gone()).await.expect("the sandbox to end")
}

fn ready() -> Vec<u8> {
    frame(&FromSandbox::Ready { known: Vec::new() }, b"")
}

/// What PID 1 may not say instead of a hello or after it.
#[tokio::test]
async fn a_wrong_handshake_ends_the_sandbox() {
    let stranger = Known { key: "s/9/9".to_owned(), state: CallState::Finished };
    let old = Hello { version: VERSION + 2, oldest: VERSION + 1, role: Role::Control(Box::new(facts::good(0))) };
    let loose = Role::Control(Box::new(Facts { no_new_privs: false, ..facts::good(0) }));
    let cases: Vec<(&str, GoneKind, Vec<u8>)> = vec![
        ("no hello", GoneKind::Protocol, ready()),
        ("not JSON", GoneKind::Protocol, b"\0\0\0\x06\0\x04oops".to_vec()),
        ("too long", GoneKind::Protocol, b"\xff\xff\xff\xff".to_vec()),
        ("header longer than frame", GoneKind::Protocol, b"\0\0\0\x04\0\x09{}".to_vec()),
        ("payload", GoneKind::Protocol, frame(&control_hello(), b"x")),
        ("other version", GoneKind::Protocol, frame(&FromSandbox::Hello(Box::new(old)), b"")),
        ("hello twice", GoneKind::Protocol, [frame(&control_hello(), b""), frame(&control_hello(), b"")].concat()),
        (
            "strange calls",
            GoneKind::Protocol,
            [frame(&control_hello(), b""), frame(&FromSandbox::Ready { known: vec![stranger] }, b"")].concat(),
        ),
        ("a server nobody ordered", GoneKind::Protocol, frame(&hello(Role::Files { label: 7 }), b"")),
        ("loose confinement", GoneKind::Facts, frame(&hello(loose), b"")),
    ];
    assert_eq!(OLDEST, VERSION, "the case `other version` must name one that is too new");
    for (name, kind, bytes) in cases {
        let place = Place::new();
        let link = place.link(timing());
        let mut peer = Peer::connect(&place.socket()).await;
        peer.stream.write_all(&bytes).await.unwrap();
        let gone = end_of(&link).await;
        assert_eq!(gone.kind, kind, "{name}: {gone}");
    }
}

/// What PID 1 may not say while a command runs.
#[tokio::test]
async fn a_wrong_frame_ends_the_sandbox_and_its_calls() {
    let id = 1;
    let done =
        |id, outcome, payload: &[u8]| frame(&FromSandbox::Done(Box::new(protocol::Done { id, outcome })), payload);
    let entry = Entry { path: String::new(), kind: EntryKind::Folder };
    let good = done(id, bash_end(b"ok"), b"ok");
    let cases: Vec<(&str, Vec<u8>)> = vec![
        ("garbage", vec![0xff; 100]),
        ("an end for another call", done(2, bash_end(b""), b"")),
        ("two ends", [good.clone(), good].concat()),
        ("an end that does not fit", done(id, Outcome::NeedsChild, b"")),
        ("a payload that does not fit", done(id, Outcome::Job { job: String::new(), log: String::new() }, b"x")),
        ("a head longer than its payload", done(id, bash_end(b"four"), b"x")),
        ("a stream nobody asked for", frame(&FromSandbox::Chunk { id }, b"x")),
        ("an empty chunk", frame(&FromSandbox::Chunk { id }, b"")),
        ("a chunk of no call", frame(&FromSandbox::Chunk { id: 9 }, b"x")),
        ("an entry", frame(&FromSandbox::Entry { id, entry }, b"")),
        ("credit for no call", frame(&FromSandbox::Credit { id: 9, bytes: 1 }, b"")),
        ("no credit", frame(&FromSandbox::Credit { id, bytes: 0 }, b"")),
        ("endless credit", frame(&FromSandbox::Credit { id, bytes: u32::MAX }, b"").repeat(3)),
        ("credit with a payload", frame(&FromSandbox::Credit { id, bytes: 1 }, b"x")),
        ("a pong without a ping", frame(&FromSandbox::Pong { nonce: 1 }, b"")),
        ("hello again", frame(&control_hello(), b"")),
        ("ready again", ready()),
    ];
    for (name, bytes) in cases {
        let place = Place::new();
        let link = place.link(timing());
        let mut peer = Peer::control(&place.socket()).await;
        let call = bash("s/1/0", "true");
        let (reply, ()) = tokio::join!(link.call(&call), async {
            assert_eq!(peer.next_call().await.0.id, id);
            peer.stream.write_all(&bytes).await.unwrap();
        });
        let gone = end_of(&link).await;
        assert_eq!(gone.kind, GoneKind::Protocol, "{name}: {gone}");
        assert!(name == "two ends" || matches!(reply, Err(CallError::Gone(_))), "{name}: {reply:?}");
        let later = link.call(&bash("s/1/1", "true")).await;
        assert!(matches!(later, Err(CallError::Gone(_))), "{name}: {later:?}");
    }
}

/// Security 6: the deadline is for a whole frame, so one byte now and then does not keep it alive.
#[tokio::test]
async fn a_frame_must_be_whole_in_time() {
    let place = Place::new();
    let link = place.link(Timing { frame: Duration::from_millis(300), ..timing() });
    let mut peer = Peer::control(&place.socket()).await;
    link.ping_once_ready(&mut peer).await;
    let bytes = frame(&FromSandbox::Pong { nonce: 5 }, b"");
    let drip = async {
        for byte in bytes.iter().cycle().take(7) {
            if peer.stream.write_all(&[*byte]).await.is_err() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    let (gone, ()) = tokio::join!(end_of(&link), drip);
    assert_eq!(gone.kind, GoneKind::Protocol);
    assert!(gone.message.contains("whole"), "{gone}");
}

/// Messages in any order, with ids that exist and ids that do not.
fn anything() -> impl Strategy<Value = (FromSandbox, Vec<u8>)> {
    let id = 0_u64..4;
    let outcome = prop_oneof![
        Just(Outcome::Nothing),
        Just(Outcome::NeedsChild),
        Just(bash_end(b"abc")),
        Just(Outcome::Job { job: "job-1".to_owned(), log: "/tmp/log".to_owned() }),
        Just(Outcome::Failed { cause: protocol::Cause::Invalid, message: String::new() }),
    ];
    let message = prop_oneof![
        (id.clone(), outcome).prop_map(|(id, outcome)| FromSandbox::Done(Box::new(protocol::Done { id, outcome }))),
        id.clone().prop_map(|id| FromSandbox::Chunk { id }),
        (id, any::<u32>()).prop_map(|(id, bytes)| FromSandbox::Credit { id, bytes }),
        any::<u64>().prop_map(|nonce| FromSandbox::Pong { nonce }),
        Just(control_hello()),
        Just(FromSandbox::Ready { known: Vec::new() }),
    ];
    (message, prop_oneof![3 => Just(Vec::new()), 1 => Just(b"abc".to_vec()), 1 => Just(vec![0; MAX_PAYLOAD])])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever PID 1 says, in whatever order: no panic, no hang, and every call has an end.
    #[test]
    fn every_call_ends_whatever_is_said(said in prop::collection::vec(anything(), 0..8), torn in 0_usize..40) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let place = Place::new();
            let link = place.link(Timing { reconnect: Duration::from_millis(20), ..timing() });
            let mut peer = Peer::control(&place.socket()).await;
            let calls = [bash("s/1/0", "one"), bash("s/1/1", vec![0; MAX_PAYLOAD + 1]), bash("s/1/2", "three")];
            let ends = futures_util::future::join_all(calls.iter().map(|call| link.call(call)));
            let talk = async {
                peer.next_call().await;
                for (message, payload) in &said {
                    peer.send(message, payload).await;
                }
                let _ = peer.stream.write_all(&frame(&FromSandbox::Chunk { id: 1 }, b"torn")[..torn.min(20)]).await;
                drop(peer);
            };
            let (ends, ()) = timeout(Duration::from_secs(20), async { tokio::join!(ends, talk) }).await.unwrap();
            assert_eq!(ends.len(), 3);
        });
    }
}

/// More stream than the host allowed.
#[tokio::test]
async fn a_stream_beyond_its_credit_ends_the_sandbox() {
    let place = Place::new();
    let link = place.link(timing());
    let mut control = Peer::control(&place.socket()).await;
    let mut worker = Peer::files(&place.socket(), 0).await;
    link.ready().await.unwrap();
    let call = read("s/1/0", "/tmp/a.png");
    let (reply, ()) = tokio::join!(link.call(&call), async {
        let (small, _) = worker.next_call().await;
        worker.done(small.id, Outcome::NeedsChild, b"").await;
        let (open, _) = control.next_call().await;
        let protocol::Request::OpenFiles { label } = open.request else { panic!("{open:?}") };
        control.done(open.id, Outcome::Nothing, b"").await;
        let mut server = Peer::files(&place.socket(), label).await;
        let (call, _) = server.next_call().await;
        // The reader of the stream gives credit back, so it takes a while until the credit is used up.
        for _ in 0..64 {
            server.send(&FromSandbox::Chunk { id: call.id }, &vec![0; MAX_PAYLOAD]).await;
        }
        assert!(MAX_PAYLOAD <= INITIAL_CREDIT as usize);
    });
    assert!(matches!(reply, Err(CallError::Gone(Gone { kind: GoneKind::Protocol, .. }))), "{reply:?}");
}

impl Link {
    /// One ping that `peer` answers.
    async fn ping_once_ready(&self, peer: &mut Peer) {
        let (pong, ()) = tokio::join!(self.ping(), async {
            while let Some(frame) = peer.receive().await {
                if let protocol::ToSandbox::Ping { nonce } = frame.header {
                    peer.send(&FromSandbox::Pong { nonce }, b"").await;
                    break;
                }
            }
        });
        pong.unwrap();
    }
}
