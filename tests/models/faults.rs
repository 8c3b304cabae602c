//! Providers that fail: what is asked again, what goes to the next model, and what ends the session.

use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use super::{end_of, events, place_with, run, session_of, start};
use crate::harness::Session;
use crate::harness::provider::{Answer, Fault, Provider, Turn, Wire};

/// M-RETRY-1: a status that passes is asked again and the session goes on as if nothing had been.
#[test]
fn what_passes_is_asked_again() {
    for wire in Wire::ALL {
        let provider = Provider::start(wire);
        for status in [429, 529, 500, 503] {
            provider.push(Answer::status(status));
        }
        provider.push(Turn::new().say("Done."));
        let place = place_with(&provider);
        let ran = run(start(&place, &provider));
        ran.exits(0);
        assert_eq!((events(&ran, "retry").len(), provider.requests().len()), (4, 5), "{wire:?}: {ran}");
        let bodies: Vec<Value> = provider.requests().into_iter().map(|request| request.body).collect();
        assert!(bodies.windows(2).all(|pair| pair[0] == pair[1]), "it is the same request each time");
    }
}

/// M-RETRY-2: the provider says when it may be asked again, and is not asked before.
#[test]
fn retry_after_is_waited_for() {
    let provider = Provider::start(Wire::Anthropic);
    provider.push(Answer::status(429).header("retry-after", "2"));
    provider.push(Turn::new().say("Done."));
    let place = place_with(&provider);
    let begun = Instant::now();
    let ran = run(start(&place, &provider));
    ran.exits(0);
    assert!(begun.elapsed() >= Duration::from_secs(2));
    let wait = events(&ran, "retry")[0]["wait_ms"].as_u64().expect("milliseconds");
    assert!((2000..=2500).contains(&wait), "{wait}");
}

/// M-RETRY-2, M-FALL-1: nobody waits an hour: the next model is asked, or the session ends and says so.
#[test]
fn who_asks_for_too_much_has_failed() {
    let provider = Provider::start(Wire::Openai);
    provider.always(Answer::status(429).header("retry-after", "3600"));
    let place = place_with(&provider);
    let ran = run(start(&place, &provider));
    ran.exits(4);
    let (cause, message) = end_of(&ran);
    assert_eq!(cause, "model");
    assert!(message.contains("it may be asked again in 3600 s, which is too long to wait"), "{message}");
    assert_eq!(provider.requests().len(), 1);

    let other = Provider::with(Wire::Anthropic, [Turn::new().say("I am there.")]);
    place.write("config.toml", format!("[models.other]\n{}{}", other.model(), provider.config()));
    place.agent("worker", "models = [\"real\", \"other\"]\n");
    let mut command = start(&place, &provider);
    command.env(other.variable(), crate::harness::provider::KEY);
    let ran = run(command);
    ran.exits(0);
    assert_eq!(events(&ran, "fallback")[0]["to"], "other");
    let turns = place.bodies(&session_of(&ran), "assistant");
    assert_eq!((&turns[0]["model"], &turns[0]["text"]), (&json!("anthropic/claude-sonnet-4-5"), &json!("I am there.")));
}

/// M-FALL-1, M-FALL-3: 529 until patience ends leads to the second model, which understands what the first one did.
#[test]
fn an_overloaded_provider_gives_way_to_the_next() {
    let first = Provider::start(Wire::Anthropic);
    let call = json!({"command": "echo from the sandbox"});
    first.push(Turn::new().think("Hm.", "c2ln").say("I look.").call("toolu_1", "bash", &call));
    first.always(Answer::status(529));
    let second = Provider::with(Wire::Openai, [Turn::new().say("It says so.")]);
    let place = place_with(&first);
    place.write("config.toml", format!("[models.second]\n{}{}", second.model(), first.config()));
    place.agent("worker", "models = [\"real\", \"second\"]\n");
    let mut command = start(&place, &first);
    command.env(second.variable(), crate::harness::provider::KEY);
    let ran = run(command);
    ran.exits(0);
    assert_eq!((first.requests().len(), second.requests().len()), (7, 1), "{ran}");
    assert_eq!(second.refused(), Vec::<String>::new());
    let body = second.last().body.to_string();
    assert!(body.contains("from the sandbox") && !body.contains("c2ln"), "no signature of another provider: {body}");
}

/// M-RETRY-1, M-STREAM-1: an answer that breaks off is asked for again; what came of it is in no event and no journal, and
/// people see that it does not count.
#[test]
fn an_answer_that_breaks_off_is_not_doubled() {
    for fault in [Fault::Ends, Fault::Breaks] {
        for wire in Wire::ALL {
            let provider = Provider::start(wire);
            let lines = "First line\nand second line that breaks off";
            // Before the last events, so that the first line is out.
            provider.push(Turn::new().say(lines).fails(6, fault.clone()));
            provider.push(Turn::new().say("The whole answer."));
            let place = place_with(&provider);
            let ran = run(start(&place, &provider));
            ran.exits(0);
            let said: Vec<Value> = events(&ran, "text").iter().map(|event| event["text"].clone()).collect();
            assert_eq!(said, ["The whole answer."], "{wire:?} {fault:?}");
            assert_eq!(place.bodies(&session_of(&ran), "assistant").len(), 1);
            assert!(!ran.stdout.contains("First line"), "{ran}");

            provider.push(Turn::new().say(lines).fails(6, fault.clone()));
            provider.push(Turn::new().say("The whole answer."));
            let mut command = place.command(["start", "--agent", "worker"]);
            command.env(provider.variable(), crate::harness::provider::KEY);
            let ran = run(command);
            ran.exits(0);
            let model: Vec<&str> = ran.stdout.lines().filter(|line| line.starts_with('│')).collect();
            let mark = "│ … (broken off: what it said above does not count)";
            assert_eq!(model, ["│ First line", mark, "│ The whole answer."], "{wire:?} {fault:?}");
        }
    }
}

/// M-STREAM-1: a line is there as soon as it is whole, and marked when the session ends before the answer does.
#[test]
fn people_see_what_is_being_written() {
    let provider = Provider::start(Wire::Anthropic);
    provider.always(Turn::new().say("First line\nand a second one that stalls").fails(6, Fault::Stalls));
    let place = place_with(&provider);
    let mut command = place.command(["start", "--agent", "worker"]);
    command.env(provider.variable(), crate::harness::provider::KEY);
    let mut session = Session::of(command);
    session.line_with("│ First line");
    session.signal(Signal::SIGINT);
    let ran = session.end();
    ran.exits(130).prints("│ First line\n│ … (broken off: what it said above does not count)\ninterrupted: ");
    assert!(!ran.stdout.contains("and a second one"), "{ran}");
}

/// A failure that does not pass ends the session at once, with cause, code and a message that cannot steer a terminal.
#[test]
fn what_does_not_pass_ends_the_session() {
    let nasty = "no \u{1b}]52;c;QQ==\u{7}\u{9b}2J";
    for (wire, status) in [(Wire::Anthropic, 400), (Wire::Openai, 401), (Wire::Ollama, 404), (Wire::Anthropic, 403)] {
        let provider = Provider::start(wire);
        let body = json!({"type": "error", "error": {"type": "some_error", "message": nasty}}).to_string();
        provider.push(Answer::status(status).body(&body));
        let place = place_with(&provider);
        let mut command = place.command(["start", "--agent", "worker"]);
        command.env(provider.variable(), crate::harness::provider::KEY);
        let ran = run(command);
        ran.exits(4).prints("model: ");
        assert!(!ran.stdout.contains('\u{1b}') && !ran.stdout.contains('\u{9b}'), "{ran}");
        assert_eq!(provider.requests().len(), 1, "{wire:?} {status}");
    }
}

/// M-CANCEL-1: a session that is interrupted or stopped, or whose time is up, hangs up on its provider.
#[test]
fn the_end_of_a_session_ends_its_request() {
    let provider = Provider::start(Wire::Anthropic);
    provider.always(Turn::new().say("I think about it for a long time").fails(4, Fault::Stalls));
    let place = place_with(&provider);

    let mut session = Session::of(start(&place, &provider));
    session.event("thinking");
    provider.wait_for_requests(1);
    session.signal(Signal::SIGINT);
    session.end().exits(130);
    provider.wait_for_hang_ups(1);

    let mut session = Session::of(start(&place, &provider));
    let id = session.id();
    provider.wait_for_requests(2);
    place.run(["stop", &id]).exits(0);
    session.end().exits(125);
    provider.wait_for_hang_ups(2);

    place.agent("worker", "timeout = 2\n");
    run(start(&place, &provider)).exits(124);
    provider.wait_for_hang_ups(3);
}
