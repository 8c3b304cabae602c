//! From the path a model gives to an absolute one (T-3).

use protocol::MAX_PATH;

use super::fault::Fault;
use crate::session::Session;

/// An absolute path in normal form: no `.`, no doubled or trailing `/`. `..` stays, because only the kernel knows what
/// it means behind a link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Resolved {
    /// The path.
    pub(super) path: String,
    /// It ended in `/`, `.` or `..`, so it can only mean a folder.
    pub(super) folder: bool,
}

/// Resolves `given`: a leading `@` is dropped, `~` is the sandbox's HOME, relative paths start at the session's
/// directory.
pub(super) fn resolve(session: &Session, given: &str) -> Result<Resolved, Fault> {
    let named = given.strip_prefix('@').unwrap_or(given);
    if named.is_empty() {
        return Err(Fault::Argument("the path is empty: name a file or folder".to_owned()));
    }
    if named.contains('\0') {
        return Err(Fault::Argument("the path holds a NUL byte, which no file name can".to_owned()));
    }
    let home = session.home.to_string_lossy();
    let directory = session.directory.to_string_lossy();
    let (start, rest) = match named.strip_prefix('~') {
        Some(rest) if rest.is_empty() || rest.starts_with('/') => (home.as_ref(), rest),
        _ if named.starts_with('/') => ("", named),
        _ => (directory.as_ref(), named),
    };
    let mut path = String::with_capacity(start.len() + rest.len() + 2);
    for part in start.split('/').chain(rest.split('/')).filter(|part| !part.is_empty() && *part != ".") {
        path.push('/');
        path.push_str(part);
    }
    if path.is_empty() {
        path.push('/');
    }
    if path.len() >= MAX_PATH {
        return Err(Fault::Argument(format!(
            "the path has {} bytes; at most {} are possible",
            path.len(),
            MAX_PATH - 1
        )));
    }
    let last = rest.rsplit('/').next().unwrap_or_default();
    Ok(Resolved { path, folder: matches!(last, "" | "." | "..") })
}

/// The folder part and the last name of a path that is not empty and does not end in `/`. The folder part is `.` or `/`
/// when nothing else stands before the name.
pub(super) fn split(path: &[u8]) -> (&[u8], &[u8]) {
    match memchr::memrchr(b'/', path) {
        None => (b".", path),
        Some(0) => (b"/", &path[1..]),
        Some(at) => {
            let mut end = at;
            while end > 1 && path[end - 1] == b'/' {
                end -= 1;
            }
            (&path[..end], &path[at + 1..])
        }
    }
}

/// True when a link at `depth` folders below a copied root can only lead to something below that root: a relative
/// target of at most `depth` leading `..` and then names. A `..` behind a name is refused, for the name may be a link.
pub(super) fn stays_below(target: &str, depth: usize) -> bool {
    if target.is_empty() || target.starts_with('/') || target.contains('\0') || target.len() >= MAX_PATH {
        return false;
    }
    let mut parts = target.split('/').filter(|part| !part.is_empty() && *part != ".");
    let ups = parts.by_ref().take_while(|part| *part == "..").count();
    // `take_while` also ate the first name, which is none of the `..` looked for here.
    ups <= depth && parts.all(|part| part != "..")
}

/// True when `path` may stand in an entry of a copy: `/` between names, none of them empty, `.` or `..`.
pub(super) fn is_entry_path(path: &str) -> bool {
    path.len() < MAX_PATH
        && !path.contains('\0')
        && path.split('/').all(|part| !matches!(part, "" | "." | "..") && part.len() <= 255)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::files::host::session_in;

    fn resolved(given: &str) -> String {
        resolve(&session_in("/app/static"), given).unwrap().path
    }

    /// T-3: `~` is HOME, a leading `@` is dropped, relative paths start at the working directory.
    #[test]
    fn the_three_ways_to_name_a_file() {
        assert_eq!(resolved("SKILL.md"), "/app/static/SKILL.md");
        assert_eq!(resolved("./a//b/./c/"), "/app/static/a/b/c");
        assert_eq!(resolved("@notes.txt"), "/app/static/notes.txt");
        assert_eq!(resolved("@/tmp/x"), "/tmp/x");
        assert_eq!(resolved("@@x"), "/app/static/@x");
        assert_eq!(resolved("~"), "/tmp/home");
        assert_eq!(resolved("~/.cache"), "/tmp/home/.cache");
        assert_eq!(resolved("@~/x"), "/tmp/home/x");
        assert_eq!(resolved("~other/x"), "/app/static/~other/x");
        assert_eq!(resolved("//tmp///x"), "/tmp/x");
        assert_eq!(resolved("/"), "/");
        assert_eq!(resolved("../x"), "/app/static/../x");
        assert_eq!(resolved("日本語 🙂.md"), "/app/static/日本語 🙂.md");
    }

    /// T-3: what cannot be a path is refused and says why.
    #[test]
    fn impossible_paths() {
        let session = session_in("/app/static");
        for given in ["", "@", "a\0b", &"x/".repeat(2100)] {
            assert!(matches!(resolve(&session, given), Err(Fault::Argument(_))), "{given:?}");
        }
    }

    #[test]
    fn only_a_folder_can_be_meant() {
        let session = session_in("/app/static");
        for (given, folder) in
            [("a/", true), ("a/.", true), (".", true), ("..", true), ("~", true), ("a", false), ("/", true)]
        {
            assert_eq!(resolve(&session, given).unwrap().folder, folder, "{given}");
        }
    }

    #[test]
    fn link_targets_below_the_root() {
        for (target, depth) in [("a", 0), ("a/b", 0), ("../a", 1), ("../../x/y", 2), ("./a", 0), ("..", 1), (".", 0)] {
            assert!(stays_below(target, depth), "{target} at {depth}");
        }
        for (target, depth) in
            [("/etc", 3), ("..", 0), ("../../x", 1), ("a/..", 0), ("a/../../..", 2), ("", 0), ("a\0", 0)]
        {
            assert!(!stays_below(target, depth), "{target} at {depth}");
        }
    }

    proptest! {
        /// T-3: the result is absolute and normal, and resolving it again changes nothing.
        #[test]
        fn resolving_twice_is_resolving_once(given in "[~@]?[a./~@ é]{1,40}") {
            let session = session_in("/app/static");
            let Ok(once) = resolve(&session, &given) else { return Ok(()) };
            prop_assert!(once.path.starts_with('/'));
            prop_assert!(once.path == "/" || !once.path.ends_with('/'));
            prop_assert!(!once.path.contains("//") && !once.path.contains("/./"));
            prop_assert_eq!(&resolve(&session, &once.path).unwrap().path, &once.path);
        }

        /// Splitting keeps every byte but the slashes between folder and name.
        #[test]
        fn split_then_join(path in "/?[a-c]{1,3}(/{1,2}[a-c.]{1,3}){0,4}") {
            let (folder, name) = split(path.as_bytes());
            prop_assert!(!name.contains(&b'/') && !name.is_empty());
            let joined = [folder, b"/", name].concat();
            let normal = |bytes: &[u8]| {
                let text = String::from_utf8(bytes.to_vec()).unwrap();
                text.split('/').filter(|part| !part.is_empty() && *part != ".").map(str::to_owned).collect::<Vec<_>>()
            };
            prop_assert_eq!(normal(&joined), normal(path.as_bytes()));
        }
    }
}
