//! Finding whoever serves, and its end.

use std::os::unix::fs::MetadataExt;
use std::time::{Duration, Instant};

use tokio::net::UnixListener;

use super::*;

#[tokio::test]
async fn the_socket_is_its_users_alone_and_found_by_its_project() {
    staged(Deadlines::USUAL, async |stage| {
        let mode = |path: &std::path::Path| std::fs::metadata(path).unwrap().mode() & 0o7777;
        assert_eq!((mode(&stage.socket()), mode(stage.seat.folder())), (0o600, 0o700));
        assert!(Client::find(&stage.state, "/another").await.unwrap().is_none());
        stage.client().await.health().await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn a_socket_that_is_left_over_is_nobody_and_is_replaced() {
    let folder = tempfile::tempdir().unwrap();
    // Too long for a socket's address.
    let root = folder.path().join("x".repeat(120));
    let state = State::open_at(&root).unwrap();
    let seat = seat::Seat::claim(&state, "/p").unwrap();
    drop(bind(&seat).unwrap());
    assert!(seat.folder().join("control.sock").exists());
    assert!(Client::find(&state, "/p").await.unwrap().is_none());
    let _listener = bind(&seat).unwrap();
    assert!(Client::find(&state, "/p").await.unwrap().is_some());
}

#[tokio::test]
async fn whoever_hangs_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let state = State::open_at(&folder.path().join("state")).unwrap();
    let seat = seat::Seat::claim(&state, "/p").unwrap();
    let _listener: UnixListener = bind(&seat).unwrap();
    let client = Client::find(&state, "/p").await.unwrap().unwrap().with_deadline(Duration::from_millis(100));
    let failure = client.health().await.unwrap_err();
    let pid = std::process::id();
    let said = format!("/p: process {pid} that serves it has not answered within 0.1 s");
    assert_eq!((failure.code, failure.message), (1, said));
}

#[tokio::test]
async fn whoever_speaks_otherwise_or_is_gone_is_told_from_a_refusal() {
    let folder = tempfile::tempdir().unwrap();
    let state = State::open_at(&folder.path().join("state")).unwrap();
    let seat = seat::Seat::claim(&state, "/p").unwrap();
    let listener = bind(&seat).unwrap();
    let client = Client::find(&state, "/p").await.unwrap().unwrap();
    drop(listener.accept().await.unwrap());
    for answer in [
        "",
        "SSH-2.0-x\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nx",
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n{",
        "HTTP/1.1 500 Oh\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n{}",
    ] {
        let answering = async {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut head = [0; 4096];
            assert!(stream.read(&mut head).await.unwrap() > 0);
            stream.write_all(answer.as_bytes()).await.unwrap();
        };
        let (failure, ()) = tokio::join!(client.health(), answering);
        let failure = failure.unwrap_err();
        assert!(failure.message.starts_with("/p: whoever serves it does not answer as agreed: "), "{failure:?}");
    }
    drop(listener);
    let failure = client.health().await.unwrap_err();
    assert_eq!(failure.message, "/p: nobody serves it any more");
}

#[tokio::test]
async fn what_has_begun_is_answered_at_the_end() {
    staged(Deadlines::USUAL, async |stage| {
        let client = stage.client().await;
        let slow = {
            let client = client.clone();
            spawn_local(
                async move { client.start(&NewStart { agent: "slow".to_owned(), ..NewStart::default() }).await },
            )
        };
        while stage.control.asked.borrow().is_empty() {
            tokio::task::yield_now().await;
        }
        stage.shutdown.cancel();
        while Client::find(&stage.state, &stage.project).await.unwrap().is_some() {
            tokio::task::yield_now().await;
        }
        stage.control.go.notify_one();
        let id = slow.await.unwrap().unwrap();
        stage.store.session(&id).await.unwrap();
        stage.serving.await.unwrap();
        assert_eq!(client.health().await.unwrap_err().code, 1);
    })
    .await;
}

#[tokio::test]
async fn the_end_does_not_wait_for_ever() {
    let deadlines = Deadlines { grace: Duration::from_millis(200), ..Deadlines::USUAL };
    staged(deadlines, async |stage| {
        let client = stage.client().await;
        let stuck =
            spawn_local(
                async move { client.start(&NewStart { agent: "slow".to_owned(), ..NewStart::default() }).await },
            );
        while stage.control.asked.borrow().is_empty() {
            tokio::task::yield_now().await;
        }
        let began = Instant::now();
        stage.shutdown.cancel();
        stage.serving.await.unwrap();
        assert!(began.elapsed() < Duration::from_secs(3));
        assert!(stuck.await.unwrap().is_err());
        drop(stage.folder);
    })
    .await;
}
