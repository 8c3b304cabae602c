//! Requests that nobody should make.

use std::time::{Duration, Instant};

use nix::sys::resource::{Resource, getrlimit, setrlimit};

use super::*;

const SHORT: Deadlines =
    Deadlines { head: Duration::from_millis(300), whole: Duration::from_millis(900), grace: Duration::from_secs(1) };

#[tokio::test]
async fn ids_are_no_paths_and_no_patterns() {
    staged(Deadlines::USUAL, async |stage| {
        stage.queue("a").await;
        let long = "x".repeat(8_000);
        let ids = [
            "..",
            "%2e%2e",
            "..%2f..%2fstate",
            "%2Fetc%2Fpasswd",
            "%25",
            "_",
            "*",
            "'%20OR%201=1--",
            "%00",
            "%0a",
            "-",
            long.as_str(),
        ];
        for id in ids {
            for (method, rest) in [("GET", ""), ("GET", "/events"), ("POST", "/stop"), ("POST", "/kill")] {
                let (status, answer) = stage.ask(method, &format!("/sessions/{id}{rest}"), "").await;
                assert_eq!((status, &answer["code"]), (404, &json!(2)), "{id}{rest}: {answer}");
            }
        }
        for path in ["/sessions//stop", "/sessions//kill"] {
            assert_eq!(stage.ask("POST", path, "").await.0, 404, "{path}");
        }
        for path in ["/sessions/../health", "/sessions//events", "/sessions/", "/nonsense", "/../../etc/passwd"] {
            assert_eq!(stage.ask("GET", path, "").await.0, 404, "{path}");
        }
        let (status, answer) = stage.ask("GET", "/sessions/%ff", "").await;
        assert_eq!((status, &answer["code"]), (400, &json!(2)));
        for query in ["after=-1", "after=x", "limit=99999999999999999999999", "after=18446744073709551615"] {
            let id = stage.queue("b").await.id;
            let (status, answer) = stage.ask("GET", &format!("/sessions/{id}/events?{query}"), "").await;
            assert!(status == 400 || (status == 200 && answer["events"] == json!([])), "{query}: {status} {answer}");
        }
        assert_eq!(stage.ask("DELETE", "/health", "").await.0, 405);
    })
    .await;
}

#[tokio::test]
async fn bodies_that_are_not_asked_for_are_refused() {
    staged(Deadlines::USUAL, async |stage| {
        let deep = "[".repeat(100_000);
        for body in
            ["", "{", "null", "[]", "{\"agent\": 1}", "{\"agent\": \"a\", \"root\": true}", "\u{0}", deep.as_str()]
        {
            let (status, answer) = stage.ask("POST", "/sessions", body).await;
            assert_eq!((status, &answer["code"]), (400, &json!(2)), "{answer}");
        }
        assert!(stage.control.asked.borrow().is_empty());
    })
    .await;
}

#[tokio::test]
async fn bodies_are_bounded_and_events_have_more_room() {
    staged(Deadlines::USUAL, async |stage| {
        let start = |bytes: usize| format!("{{\"agent\": \"a\", \"task\": \"{}\"}}", "x".repeat(bytes));
        assert_eq!(stage.ask("POST", "/sessions", &start(MAX_BODY - 1000)).await.0, 201);
        assert_eq!(stage.ask("POST", "/sessions", &start(MAX_BODY)).await.0, 413);
        let event = |bytes: usize| NewEmit {
            source: "one".to_owned(),
            event: "x".to_owned(),
            payload: json!({"x": "x".repeat(bytes)}),
        };
        let client = stage.client().await;
        client.emit(&event(MAX_EVENT - 1000)).await.unwrap();
        let failure = client.emit(&event(MAX_EVENT)).await.unwrap_err();
        assert_eq!((failure.code, failure.hint.as_deref()), (2, Some("at most 25 MiB are taken")));
        let (status, answer) = stage.ask("POST", "/events", &"x".repeat(MAX_EVENT + 1)).await;
        assert_eq!((status, &answer["code"]), (413, &json!(2)));
        assert_eq!(stage.get("/inbox").await["events"].as_array().unwrap().len(), 1);
    })
    .await;
}

#[tokio::test]
async fn nonsense_is_answered_or_closed() {
    staged(SHORT, async |stage| {
        let many = format!("GET /api/v1/health HTTP/1.1\r\n{}\r\n", "X: y\r\n".repeat(10_000));
        let long = format!("GET /{} HTTP/1.1\r\n\r\n", "x".repeat(100_000));
        for request in ["\r\n\r\n\r\n", "\u{16}\u{3}\u{1}", "GET", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", &many, &long] {
            let mut stream = UnixStream::connect(stage.socket()).await.unwrap();
            // It may be closed while we still write.
            let _ = stream.write_all(request.as_bytes()).await;
            let mut answer = Vec::new();
            let _ = stream.read_to_end(&mut answer).await;
            assert!(answer.is_empty() || answer.starts_with(b"HTTP/1.1 4"), "{}", String::from_utf8_lossy(&answer));
        }
        stage.client().await.health().await.unwrap();
    })
    .await;
}

/// Sends what it has, then a byte now and then; says how long it took until the other end closed.
async fn trickle(stage: &Stage, head: &str) -> Duration {
    let mut stream = UnixStream::connect(stage.socket()).await.unwrap();
    let began = Instant::now();
    stream.write_all(head.as_bytes()).await.unwrap();
    let (mut read, mut write) = stream.into_split();
    let mut answer = Vec::new();
    let reading = read.read_to_end(&mut answer);
    tokio::pin!(reading);
    loop {
        tokio::select! {
            _ = &mut reading => return began.elapsed(),
            () = tokio::time::sleep(Duration::from_millis(50)) => {
                // Once it has closed, reading says so.
                let _ = write.write_all(b"x").await;
            }
        }
    }
}

#[tokio::test]
async fn whoever_is_slow_is_cut_off_and_holds_nobody_up() {
    staged(SHORT, async |stage| {
        let head = trickle(&stage, "GET /api/v1/health HTTP/1.1\r\nX: ");
        let body = trickle(&stage, "POST /api/v1/events HTTP/1.1\r\nHost: x\r\nContent-Length: 99999\r\n\r\n{");
        let half = async {
            let began = Instant::now();
            stage.raw("POST /api/v1/sessions HTTP/1.1\r\nContent-Length: 9").await;
            began.elapsed()
        };
        let others = async {
            let began = Instant::now();
            for _ in 0..20 {
                stage.client().await.health().await.unwrap();
            }
            began.elapsed()
        };
        let (head, body, half, others) = tokio::join!(head, body, half, others);
        for (took, allowed) in [(head, SHORT.head), (half, SHORT.head), (body, SHORT.whole)] {
            assert!(took >= allowed && took < allowed + Duration::from_secs(2), "{took:?} for {allowed:?}");
        }
        assert!(others < Duration::from_secs(2), "{others:?}");
    })
    .await;
}

#[tokio::test]
async fn a_thousand_connections_delay_and_do_not_deny() {
    let (_, most) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    setrlimit(Resource::RLIMIT_NOFILE, most, most).unwrap();
    staged(SHORT, async |stage| {
        let client = stage.client().await;
        let mut idle = Vec::new();
        while idle.len() < 1_000 {
            // A socket's backlog may hold fewer.
            let Ok(stream) = UnixStream::connect(stage.socket()).await else {
                tokio::task::yield_now().await;
                continue;
            };
            idle.push(stream);
        }
        let began = Instant::now();
        client.health().await.unwrap();
        assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
        for mut stream in idle {
            let mut answer = Vec::new();
            let _ = stream.read_to_end(&mut answer).await;
        }
        client.health().await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn whoever_asks_and_goes_away_leaves_nothing_behind() {
    staged(Deadlines::USUAL, async |stage| {
        for _ in 0..300 {
            let mut stream = UnixStream::connect(stage.socket()).await.unwrap();
            stream.write_all(b"GET /api/v1/sessions?all=true HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
        }
        stage.client().await.health().await.unwrap();
        stage.shutdown.cancel();
        stage.serving.await.unwrap();
    })
    .await;
}
