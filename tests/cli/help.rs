//! Every subcommand explains itself, with examples, and fits a terminal.

use clap::CommandFactory;
use runner::cli::Cli;
use unicode_width::UnicodeWidthStr;

use crate::harness::Place;

/// The subcommands without any of their own, each with the words that lead to it.
fn leaves() -> Vec<(Vec<String>, clap::Command)> {
    fn walk(command: &clap::Command, words: &[String], leaves: &mut Vec<(Vec<String>, clap::Command)>) {
        for sub in command.get_subcommands().filter(|sub| sub.get_name() != "help") {
            let words = [words, &[sub.get_name().to_owned()]].concat();
            if sub.has_subcommands() {
                walk(sub, &words, leaves);
            } else {
                leaves.push((words, sub.clone()));
            }
        }
    }
    let mut leaves_found = Vec::new();
    let mut cli = Cli::command();
    cli.build();
    walk(&cli, &[], &mut leaves_found);
    leaves_found
}

/// CLI-1: none is left out.
#[test]
fn every_subcommand_has_examples() {
    let leaves = leaves();
    assert!(leaves.len() >= 13, "{}", leaves.len());
    for (words, command) in leaves {
        let after = command.get_after_help().map(ToString::to_string).unwrap_or_default();
        assert!(after.contains("Example"), "{words:?} has no example");
        let example = format!("runner {}", words.join(" "));
        assert!(after.contains(&example), "no example of {words:?} shows it: {after}");
        assert!(command.get_about().is_some(), "{words:?} does not say what it does");
    }
    let mut cli = Cli::command();
    cli.build();
    for group in
        [&cli, cli.find_subcommand("image").expect("it is there"), cli.find_subcommand("emit").expect("so is it")]
    {
        let after = group.get_after_help().map(ToString::to_string).unwrap_or_default();
        assert!(after.contains("Examples:\n  runner "), "{} has no examples", group.get_name());
    }
}

/// CLI-1: also where a terminal is wider, and where there is none.
#[test]
fn help_fits_a_hundred_columns() {
    let place = Place::bare();
    let mut all: Vec<Vec<String>> = leaves().into_iter().map(|(words, _)| words).collect();
    all.extend([vec![], vec!["image".to_owned()]]);
    for words in all {
        for flag in ["--help", "-h"] {
            let mut command = place.command(&words);
            command.arg(flag).env("COLUMNS", "200");
            let ran = crate::harness::Ran::from(command.output().expect("it starts"));
            ran.exits(0);
            for line in ran.stdout.lines() {
                assert!(line.width() <= 100, "{words:?} {flag}: {line}");
            }
            assert!(!ran.stdout.contains('\u{1b}'), "no colours without a terminal: {words:?}");
        }
    }
}

/// CLI-2: no-color.org: nothing is coloured on a terminal either.
#[test]
fn no_color_is_honoured() {
    let place = Place::new();
    let on_terminal = |no_color: &str| {
        let inner = format!("{} ps --all", crate::harness::program().display());
        let mut command = std::process::Command::new("script");
        command.args(["-qfec", &inner, "/dev/null"]).current_dir(place.project()).env("RUNNER_STATE", place.state());
        command.env("TERM", "xterm").env("NO_COLOR", no_color).stdin(std::process::Stdio::null());
        crate::harness::Ran::from(command.output().expect("script is on every Debian")).exits(0).stdout.clone()
    };
    assert!(on_terminal("").contains("\u{1b}[1mSESSION"), "an empty variable counts as unset");
    assert!(!on_terminal("1").contains('\u{1b}'));
}

/// CLI-5: all that people read as a table or a report.
#[test]
fn reports_have_a_form_for_programs() {
    let with_json: Vec<String> = leaves()
        .into_iter()
        .filter(|(_, command)| command.get_arguments().any(|argument| argument.get_long() == Some("json")))
        .map(|(words, _)| words.join(" "))
        .collect();
    for report in
        ["ps", "show", "logs", "queue", "locks", "waits", "calls", "tools", "validate", "doctor", "start", "tool"]
    {
        assert!(with_json.contains(&report.to_owned()), "{report}: {with_json:?}");
    }
}
