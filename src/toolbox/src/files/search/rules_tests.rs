//! That the rules mean what git says they mean is held against git itself, in `tests/search`.

use super::*;

fn excludes(file: &str, path: &str, folder: bool) -> bool {
    let rules = Rules { levels: vec![Level { begins: 0, rules: [parse(file.as_bytes()), Vec::new()], bytes: 0 }] };
    rules.exclude(path.as_bytes(), folder)
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
    let rules = Rules { levels: vec![level(0, "a\nb\n", "c"), level(2, "!a\nc\n", "")] };
    assert!(!rules.exclude(b"x/a", false));
    assert!(rules.exclude(b"x/b", false));
    assert!(rules.exclude(b"x/c", false));
    let rules = Rules { levels: vec![level(0, "", "!c"), level(2, "c", "")] };
    assert!(!rules.exclude(b"x/c", false));
}
