//! A daemon that is killed again and again, at no point in particular.

use std::time::{Duration, SystemTime};

use super::scene;
use crate::harness::{Place, until};

/// Roots under way, each with a child: sixty sessions, of which thirty are there from the start.
const ROOTS: usize = 30;

/// How often the daemon is killed: 20 times, and 1,000 in `make soak`.
fn kills() -> u32 {
    if std::env::var_os("RUNNER_SOAK").is_some() { 1000 } else { 20 }
}

/// Numbers without a pattern, the same for the same seed.
struct Dice(u64);

impl Dice {
    fn below(&mut self, most: u64) -> u64 {
        // Knuth's MMIX generator; its high bits are the good ones.
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % most
    }
}

/// bug 29: S-2, S-CALL-1, S-WAIT-5: thirty roots and their children under kills at random moments: none is lost, nothing
/// happens twice, nothing is left.
#[test]
fn thirty_sessions_under_kills() {
    let seed = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("after 1970").as_secs();
    eprintln!("the dice's seed is {seed}");
    let mut dice = Dice(seed);
    let mut rounds = kills();
    while rounds > 0 {
        let place = scene::place(6);
        let tasks: Vec<String> = (0..ROOTS).map(|n| format!("t{n}")).collect();
        for task in &tasks {
            scene::begin(&place, task);
        }
        let mut unsent: Vec<String> = tasks.clone();
        let mut emit = |place: &Place, unsent: &mut Vec<String>| {
            for session in scene::waits_for_event(place) {
                let task = place.show(&session)["task"].as_str().expect("a text").to_owned();
                if let Some(at) = unsent.iter().position(|other| *other == task) {
                    unsent.swap_remove(at);
                    scene::send(place, &task);
                }
            }
        };
        // Once everything is over, kills would meet an idle daemon: the load begins anew.
        while rounds > 0 && !place.listed("ps").is_empty() {
            let daemon = place.serve();
            emit(&place, &mut unsent);
            std::thread::sleep(Duration::from_millis(dice.below(700)));
            daemon.kill_9();
            rounds -= 1;
        }
        let daemon = place.serve();
        until_all_sent(&place, &mut unsent, &mut emit);
        scene::came_to_its_end(&place, &tasks);
        daemon.stop().exits(0);
    }
}

/// Sends the events as their roots come to wait for them.
#[track_caller]
fn until_all_sent(place: &Place, unsent: &mut Vec<String>, emit: &mut impl FnMut(&Place, &mut Vec<String>)) {
    while !unsent.is_empty() {
        let before = unsent.len();
        until("one more root waits for its event", || {
            emit(place, unsent);
            unsent.len() < before || unsent.is_empty()
        });
    }
}
