//! That the rules mean what git says they mean is held against git itself, in `tests/search`.

use super::*;

fn excludes(file: &str, path: &str, folder: bool) -> bool {
    let rules = in_force(vec![Level { begins: 0, rules: [parse(file.as_bytes()), Vec::new()], bytes: 0 }]);
    rules.exclude(path.as_bytes(), folder, || Ok(())).unwrap()
}

fn in_force(levels: Vec<Level>) -> Rules {
    Rules { levels, ..Rules::default() }
}

/// T-GREP-1: comments, blanks, escapes, marks and ends of lines, as gitignore(5) has them.
#[test]
fn lines_of_an_ignore_file() {
    for (file, path) in [
        ("a", "x/y/a"),
        ("a  ", "a"),
        ("a\\ ", "a "),
        ("a\r\nb\r\n", "a"),
        ("\u{feff}a", "a"),
        ("\\#a", "#a"),
        ("\\!a", "!a"),
        ("*.o", "x/a.o"),
        ("/a/b", "a/b"),
        ("a/b", "a/b"),
        ("**/b", "x/a/b"),
        ("!a\na", "a"),
    ] {
        assert!(excludes(file, path, false), "{file:?} and {path:?}");
    }
    for (file, path) in [
        ("#a", "#a"),
        ("a", "ab"),
        ("/a", "x/a"),
        ("a/b", "x/a/b"),
        ("a/", "a"),
        ("a\n!a", "a"),
        ("a\\ ", "a"),
        ("", "a"),
        ("/", "a"),
        ("!", "a"),
        ("\t", "a"),
    ] {
        assert!(!excludes(file, path, false), "{file:?} and {path:?}");
    }
    assert!(excludes("a/", "x/a", true));
}

/// T-GREP-1: the folder nearest to a name decides, and `.ignore` before `.gitignore`.
#[test]
fn the_nearest_decides() {
    let level = |begins, git: &str, other: &str| Level {
        begins,
        rules: [parse(git.as_bytes()), parse(other.as_bytes())],
        bytes: 0,
    };
    let rules = in_force(vec![level(0, "a\nb\n", "c"), level(2, "!a\nc\n", "")]);
    assert!(!rules.exclude(b"x/a", false, || Ok(())).unwrap());
    assert!(rules.exclude(b"x/b", false, || Ok(())).unwrap());
    assert!(rules.exclude(b"x/c", false, || Ok(())).unwrap());
    let rules = in_force(vec![level(0, "", "!c"), level(2, "c", "")]);
    assert!(!rules.exclude(b"x/c", false, || Ok(())).unwrap());
}

/// T-GREP-2: rules are asked whether time is up while they are held against a single path.
#[test]
fn many_rules_look_at_the_clock() {
    let rules = in_force(vec![Level { begins: 0, rules: [parse(&b"*a?a?b\n".repeat(10_000)), Vec::new()], bytes: 0 }]);
    let path = [b'a'; 200];
    assert_eq!(rules.exclude(&path, false, || Ok(())), Ok(false));
    assert_eq!(rules.exclude(&path, false, || Err(Stop::NeedsChild)), Err(Stop::NeedsChild));
}
