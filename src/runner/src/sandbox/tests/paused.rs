//! Sandboxes that are frozen, left, and taken up again, on a real engine.

use std::time::Duration;

use protocol::{End, Outcome};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::real::{Home, run, text};
use super::{bash, read, write};
use crate::sandbox::engine::Status;
use crate::sandbox::{Sandbox, SandboxError};

/// S-WAIT-6, S-WAIT-8: a command that runs while its container is frozen and its runner changes goes on where it was.
#[tokio::test]
async fn a_command_goes_on_after_a_pause_and_another_runner() {
    let home = Home::new().await;
    let order = home.order();
    let (session, name) = (order.session.clone(), order.name.clone());
    let sandbox = Sandbox::start(&home.engine, &home.state, order).await.unwrap();
    sandbox.call(write("s/1/0", "/tmp/kept", "kept")).await.unwrap();
    let left = async {
        run(&sandbox, "s/1/2", "true").await;
        sandbox.let_go();
    };
    let call = bash("s/1/1", "for i in 1 2 3 4 5 6 7 8; do echo $i >> /tmp/ticks; sleep 0.1; done; echo over");
    tokio::select! {
        reply = sandbox.call(call) => panic!("{reply:?}"),
        () = left => {}
    }
    assert!(sandbox.pause().await);
    drop(sandbox);
    assert_eq!(home.engine.inspect(&name).await.unwrap().status, Status::Paused);
    // Longer than the command takes: while it is frozen, it gets nowhere.
    tokio::time::sleep(Duration::from_millis(1200)).await;

    let keys = ["s/1/1".to_owned()];
    let sandbox = Sandbox::resume(&home.engine, &home.state, &session, &name, 60, &keys).await.unwrap();
    let reply = sandbox.take_up("s/1/1", Duration::from_secs(20), &CancellationToken::new()).await.unwrap();
    assert!(
        matches!(&reply.outcome, Outcome::Bash(end) if end.end == End::Exited(0)),
        "it was not cancelled: {reply:?}"
    );
    assert_eq!(text(&reply), "over\n");
    assert_eq!(text(&run(&sandbox, "s/2/0", "wc -l < /tmp/ticks").await), "8\n");
    assert_eq!(text(&sandbox.call(read("s/2/1", "/tmp/kept")).await.unwrap()), "kept");
    home.stop(sandbox).await;
}

/// Whose caller goes away without leaving is cancelled, as ever.
#[tokio::test]
async fn a_call_that_nobody_lets_go_is_cancelled() {
    let home = Home::new().await;
    let sandbox = home.start().await;
    let abandoned = sandbox.call(bash("s/1/0", "sleep 1; echo late > /tmp/late"));
    assert!(timeout(Duration::from_millis(300), abandoned).await.is_err());
    let reply = run(&sandbox, "s/1/1", "sleep 1.5; test -e /tmp/late || echo cancelled").await;
    assert_eq!(text(&reply), "cancelled\n");
    home.stop(sandbox).await;
}

/// A frozen container is removed like any other, by its sandbox and by its name; frozen twice is frozen.
#[tokio::test]
async fn a_frozen_container_can_be_removed() {
    let home = Home::new().await;
    let sandbox = home.start().await;
    assert!(sandbox.pause().await);
    home.stop(sandbox).await;

    let order = home.order();
    let (session, name) = (order.session.clone(), order.name.clone());
    let sandbox = Sandbox::start(&home.engine, &home.state, order).await.unwrap();
    assert!(sandbox.pause().await);
    drop(sandbox);
    Sandbox::remove(&home.engine, &home.state, &session, &name).await.unwrap();
    home.assert_clean().await;
}

/// A pause that somebody undid behind our back, and one that is taken back.
#[tokio::test]
async fn a_thawed_container_is_taken_up_too() {
    let home = Home::new().await;
    let order = home.order();
    let (session, name) = (order.session.clone(), order.name.clone());
    let sandbox = Sandbox::start(&home.engine, &home.state, order).await.unwrap();
    assert!(sandbox.pause().await);
    sandbox.unpause().await.unwrap();
    // What is thawed already is no error.
    sandbox.unpause().await.unwrap();
    assert_eq!(text(&run(&sandbox, "s/1/0", "echo on").await), "on\n");
    assert!(sandbox.pause().await);
    drop(sandbox);
    home.engine.unpause(&name).await.unwrap();
    let sandbox = Sandbox::resume(&home.engine, &home.state, &session, &name, 60, &[]).await.unwrap();
    assert_eq!(text(&run(&sandbox, "s/2/0", "echo on").await), "on\n");
    home.stop(sandbox).await;
}

/// A sandbox that is gone is neither paused nor taken up.
#[tokio::test]
async fn what_is_gone_is_not_paused() {
    let home = Home::new().await;
    let order = home.order();
    let (session, name) = (order.session.clone(), order.name.clone());
    let sandbox = Sandbox::start(&home.engine, &home.state, order).await.unwrap();
    home.engine.kill(&name).await.unwrap();
    sandbox.gone().await;
    assert!(!sandbox.pause().await);
    drop(sandbox);
    let error = Sandbox::resume(&home.engine, &home.state, &session, &name, 60, &[]).await.unwrap_err();
    assert!(matches!(&error, SandboxError::Gone(_)), "{error}");
    Sandbox::remove(&home.engine, &home.state, &session, &name).await.unwrap();
    home.assert_clean().await;
}
