//! Everything that goes wrong between us and a provider.

use super::*;
use crate::model::FailKind;
use crate::observe::sanitise;

/// Asks for a turn that must fail.
async fn error(model: &ProviderModel) -> ModelError {
    match ask(model, &request(Vec::new())).await.0 {
        Err(error) => {
            assert!(!error.message.contains(KEY), "{error}");
            assert!(!error.message.chars().any(sanitise::is_unsafe), "{error}");
            assert!(error.message.chars().count() <= 601, "{error}");
            error
        }
        Ok(turn) => panic!("a failure is never a turn: {turn:?}"),
    }
}

async fn error_of(wire: Wire, answer: impl Into<Answer>) -> ModelError {
    let provider = Provider::with(wire, [answer]);
    error(&model(&provider, wire)).await
}

#[tokio::test]
async fn statuses_are_kinds_of_failure() {
    for wire in Wire::ALL {
        for (status, kind) in [
            (400, FailKind::Invalid),
            (401, FailKind::Auth),
            (403, FailKind::Auth),
            (404, FailKind::Invalid),
            (413, FailKind::ContextLength),
            (429, FailKind::RateLimit),
            (500, FailKind::Overloaded),
            (502, FailKind::Overloaded),
            (503, FailKind::Overloaded),
            (529, FailKind::Overloaded),
        ] {
            let error = error_of(wire, Answer::status(status)).await;
            assert_eq!(error.kind, kind, "{wire:?} {status}");
            let begin = format!("{} ({}): it answers {status}", wire.provider(), wire.model());
            assert!(error.message.starts_with(&begin), "{error}");
        }
    }
}

#[tokio::test]
async fn a_wait_that_is_asked_for_is_told() {
    for wire in Wire::ALL {
        let error = error_of(wire, Answer::status(429).header("retry-after", "7")).await;
        assert_eq!(error.retry_after, Some(Duration::from_secs(7)));
        let error = error_of(wire, Answer::status(529).header("retry-after-ms", "1500")).await;
        assert_eq!(error.retry_after, Some(Duration::from_millis(1500)));
        let date = jiff::Timestamp::now() + jiff::SignedDuration::from_secs(3600);
        let date = jiff::fmt::rfc2822::DateTimePrinter::new().timestamp_to_rfc9110_string(&date).unwrap();
        let wait = error_of(wire, Answer::status(503).header("retry-after", &date)).await.retry_after.unwrap();
        assert!((3500..=3600).contains(&wait.as_secs()), "{wait:?}");
        assert_eq!(error_of(wire, Answer::status(429)).await.retry_after, None);
    }
}

#[tokio::test]
async fn the_context_s_length_is_told_apart() {
    for wire in Wire::ALL {
        let body = json!({"error": {"type": "invalid_request_error", "message": "prompt is too long: 210000 tokens > 200000"}});
        let error = error_of(wire, Answer::status(400).body(&body.to_string())).await;
        assert_eq!(error.kind, FailKind::ContextLength);
    }
}

/// A stream that ends before the answer does: with a proper end of the body, without one, after any number of events.
#[tokio::test]
async fn a_cut_stream_is_an_error() {
    let whole = Turn::new().think("hm", "sig").say("I look around here.").call("c1", "ls", &json!({"path": "/tmp"}));
    for wire in Wire::ALL {
        for fault in [Fault::Ends, Fault::Breaks] {
            for after in 0..7 {
                let error = error_of(wire, whole.clone().fails(after, fault.clone())).await;
                assert_eq!(error.kind, FailKind::Network, "{wire:?} {fault:?} {after}: {error}");
                assert!(error.message.contains("broke off"), "{error}");
            }
        }
    }
}

#[tokio::test]
async fn an_error_in_the_stream_is_an_error() {
    for wire in Wire::ALL {
        let fault = Fault::Error("overloaded_error".to_owned(), "Overloaded".to_owned());
        let error = error_of(wire, Turn::new().say("I look around.").fails(3, fault)).await;
        assert_eq!(error.kind, FailKind::Overloaded);
        assert!(error.message.contains("broke off with an error: Overloaded"), "{error}");
        let fault = Fault::Error("rate_limit_error".to_owned(), "slow down".to_owned());
        let error = error_of(wire, Turn::new().say("I look around.").fails(1, fault)).await;
        assert!(error.kind.passes());
    }
}

#[tokio::test]
async fn what_is_not_of_the_format_is_an_error() {
    for wire in Wire::ALL {
        let error = error_of(wire, Turn::new().say("I look around.").fails(2, Fault::Garbage)).await;
        assert_eq!(error.kind, FailKind::Network);
        assert!(error.message.contains("not of the provider's format"), "{error}");
        for (content_type, body) in [
            ("text/html", "<html><title>Login</title>\u{1b}[2J</html>"),
            ("text/plain", "ok"),
            ("text/event-stream", ""),
            ("application/json", "{\"choices\": []}"),
            ("application/json", "{\"error\": {\"message\": \"no such model\"}}"),
        ] {
            let error = error_of(wire, Answer::Raw { content_type, body: body.into() }).await;
            assert!(matches!(error.kind, FailKind::Network | FailKind::Overloaded), "{wire:?} {error:?}");
        }
    }
}

/// M-WIRE-6: a page of a proxy, terminal commands, a key that is said back, and more text than anybody wants to read.
#[tokio::test]
async fn error_bodies_are_made_harmless() {
    let nasty = format!("\u{1b}[31m{KEY}\n\u{202e}{}", "long ".repeat(100_000));
    for wire in Wire::ALL {
        for body in [
            nasty.clone(),
            json!({"error": {"message": nasty}}).to_string(),
            format!("<html><title>{nasty}</title></html>"),
        ] {
            let error = error_of(wire, Answer::status(500).body(&body)).await;
            assert_eq!(error.kind, FailKind::Overloaded);
        }
        let page = Answer::status(502).body("<html>\n<head><title>502 Bad Gateway</title></head></html>");
        let error = error_of(wire, page).await;
        assert!(error.message.ends_with("it answers 502 Bad Gateway: an HTML page, \"502 Bad Gateway\""), "{error}");
    }
}

/// M-KEY-4: an answer that says the key, in its text or in a call, is none, and no piece that has it is told.
#[tokio::test]
async fn an_answer_that_repeats_the_key_is_refused() {
    for wire in Wire::ALL {
        for turn in [
            Turn::new().say(&format!("Your key is {KEY}, is it not?")),
            Turn::new().say("I look.").call("c1", "ls", &json!({"path": [KEY]})),
        ] {
            let provider = Provider::with(wire, [turn]);
            let (asked, pieces) = ask(&model(&provider, wire), &request(Vec::new())).await;
            let error = asked.expect_err("it is refused");
            assert_eq!(error.kind, FailKind::Refused, "{error}");
            assert!(error.message.contains("the answer repeats the key"), "{error}");
            assert!(!pieces.concat().contains(KEY), "{pieces:?}");
        }
    }
}

/// M-WIRE-6: a body without an end costs neither memory nor time.
#[tokio::test]
async fn a_huge_body_is_bounded() {
    const HUGE: u64 = 2 * 1024 * 1024 * 1024;
    for wire in Wire::ALL {
        for status in [200, 500] {
            let provider = Provider::with(wire, [Answer::Huge { bytes: HUGE, status }]);
            let before = resident();
            let error = error(&model(&provider, wire)).await;
            let kind = if status == 200 { FailKind::Network } else { FailKind::Overloaded };
            assert_eq!(error.kind, kind, "{error}");
            assert!(resident().saturating_sub(before) < 64 * 1024 * 1024);
            hung_up(&provider).await;
        }
    }
}

/// Waits until the server sees that nobody listens any more. The client's connections live on this thread's runtime.
async fn hung_up(provider: &Provider) {
    let seen = async {
        while provider.hung_up() == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), seen).await.expect("the client hangs up");
}

fn resident() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").expect("Linux has it");
    let pages: u64 = text.split(' ').nth(1).and_then(|pages| pages.parse().ok()).expect("a number");
    pages * 4096
}

/// Nothing at all, and nothing more.
#[tokio::test]
async fn silence_is_a_timeout() {
    for wire in Wire::ALL {
        for answer in [Answer::Silence, Turn::new().say("I look around.").fails(2, Fault::Stalls).into()] {
            let provider = Provider::with(wire, [answer]);
            let mut model = model(&provider, wire);
            model.http.set_silence(Duration::from_millis(300));
            let error = error(&model).await;
            assert_eq!(error.kind, FailKind::Timeout, "{error}");
            assert!(error.message.ends_with("no answer for 0.3 s"), "{error}");
            hung_up(&provider).await;
        }
    }
}

#[tokio::test]
async fn nobody_there_is_an_error() {
    let provider = Provider::start(Wire::Openai);
    let settings = settings(&provider, Wire::Openai);
    drop(provider);
    let error = error(&open(&settings, Some(KEY.into())).unwrap()).await;
    assert_eq!(error.kind, FailKind::Network);
    assert!(error.message.contains("cannot reach 127.0.0.1:"), "{error}");
    assert!(error.message.ends_with(": Connection refused; is it running?") && error.absent, "{error}");
    assert!(!error.message.contains("/v1/"), "{error}");
}

/// M-WIRE-6: the conversation and the key do not follow a redirect.
#[tokio::test]
async fn redirects_are_not_followed() {
    for wire in Wire::ALL {
        let thief = Provider::with(wire, [Turn::new().say("mine now")]);
        let away = Answer::status(307).header("location", &thief.base_url());
        let error = error_of(wire, away).await;
        assert_eq!(error.kind, FailKind::Invalid);
        assert!(error.message.contains("redirects are not followed"), "{error}");
        assert_eq!(thief.requests().len(), 0);
    }
}

/// Cancelling closes the connection at once: before the answer begins and in the middle of it.
#[tokio::test]
async fn cancelling_closes_the_connection() {
    for wire in Wire::ALL {
        for answer in [Answer::Silence, Turn::new().say("I look around.").fails(2, Fault::Stalls).into()] {
            let provider = Provider::with(wire, [answer]);
            let model = model(&provider, wire);
            let (events, _seen) = unbounded_channel();
            let cancel = CancellationToken::new();
            let request = request(Vec::new());
            let turn = model.turn(&request, &events, &cancel);
            let stop = async {
                while provider.requests().is_empty() {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
                cancel.cancel();
            };
            let (turn, ()) = tokio::join!(turn, stop);
            assert_eq!(turn.unwrap_err().kind, FailKind::Cancelled);
            hung_up(&provider).await;
        }
    }
}
