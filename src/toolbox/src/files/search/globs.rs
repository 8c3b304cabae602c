//! Globs as models write them: braces, `**`, and without a `/` for a name at any depth.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use globset::{GlobBuilder, GlobSet, GlobSetBuilder};

use crate::files::fault::Fault;

/// A glob for paths below a folder.
#[derive(Debug)]
pub(in crate::files) struct Globs {
    set: GlobSet,
    /// It holds a `/`, so it is about the whole path and not only about the name.
    path: bool,
    /// It began with `!`: whatever does not match is meant.
    negated: bool,
    /// It ended in `/`: only folders are meant.
    only_folders: bool,
}

impl Globs {
    /// Understands a glob. `argument` is what the model calls it.
    pub(in crate::files) fn new(given: &str, argument: &str) -> Result<Self, Fault> {
        let refuse = |why: &str| Err(Fault::Argument(format!("{argument} {given:?} {why}")));
        let (negated, text) = given.strip_prefix('!').map_or((false, given), |rest| (true, rest));
        let text = text.strip_prefix("./").unwrap_or(text);
        let only_folders = text.len() > 1 && text.ends_with('/');
        let text = if only_folders { text.trim_end_matches('/') } else { text };
        if text.is_empty() {
            return refuse("is empty: use * for everything");
        }
        if text.starts_with('/') || text.starts_with("~/") {
            return refuse("is absolute, but a glob counts from path: give the folder as path");
        }
        if text.split('/').any(|part| part == "..") {
            return refuse("leads up with .., but a glob counts from path: give the folder as path");
        }
        let glob = GlobBuilder::new(text).literal_separator(true).backslash_escape(true).empty_alternates(true).build();
        let set = glob.and_then(|glob| GlobSetBuilder::new().add(glob).build());
        match set {
            Ok(set) => Ok(Self { set, path: text.contains('/'), negated, only_folders }),
            Err(error) => refuse(&format!("is no glob: {}", error.kind())),
        }
    }

    /// True when it means this.
    pub(in crate::files) fn mean(&self, path: &[u8], name: &[u8], folder: bool) -> bool {
        let text = if self.path { path } else { name };
        let matches = self.set.is_match(Path::new(OsStr::from_bytes(text)));
        (matches && (folder || !self.only_folders)) != self.negated
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meant(glob: &str, path: &str) -> bool {
        let name = path.rsplit('/').next().unwrap();
        Globs::new(glob, "pattern").unwrap().mean(path.as_bytes(), name.as_bytes(), false)
    }

    /// T-FIND-1: a path counts from the folder that is searched, a bare name is found at any depth.
    #[test]
    fn paths_and_names() {
        for (glob, path) in [
            ("*.rs", "main.rs"),
            ("*.rs", "src/deep/main.rs"),
            ("**/*.rs", "main.rs"),
            ("**/*.rs", "src/deep/main.rs"),
            ("src/*.ts", "src/a.ts"),
            ("./src/*.ts", "src/a.ts"),
            ("src/**", "src/a/b"),
            ("*.{ts,tsx}", "a/b.tsx"),
            ("!*.rs", "a.c"),
            ("[ab].c", "x/b.c"),
            (".*", "a/.hidden"),
            ("*", ".hidden"),
        ] {
            assert!(meant(glob, path), "{glob} and {path}");
        }
        for (glob, path) in
            [("src/*.ts", "src/a/b.ts"), ("src/*.ts", "x/src/a.ts"), ("src/**", "src"), ("!*.rs", "a.rs"), ("a/", "a")]
        {
            assert!(!meant(glob, path), "{glob} and {path}");
        }
        assert!(Globs::new("a/", "pattern").unwrap().mean(b"x/a", b"a", true));
    }

    /// T-FIND-1: what cannot be a glob is named, with the remedy.
    #[test]
    fn impossible_globs() {
        for (glob, why) in [
            ("", "is empty"),
            ("/tmp/*", "is absolute"),
            ("../*.c", "leads up"),
            ("a/../b", "leads up"),
            ("{a", "is no glob"),
            ("[z-a]", "is no glob"),
        ] {
            let message = Globs::new(glob, "pattern").unwrap_err().to_string();
            assert!(message.starts_with(&format!("pattern {glob:?} {why}")), "{message}");
        }
    }

    /// T-7: a glob that would become huge is refused or small.
    #[test]
    fn huge_globs() {
        let _ = Globs::new(&"{a,b}".repeat(200), "pattern");
        let _ = Globs::new(&"{a*,**/b}".repeat(110), "pattern");
    }
}
