//! `--in` and `--out`: what is copied into a sandbox and out of it.

use std::path::{Path, PathBuf};
use std::str::FromStr;

use crate::exit::Failure;
use crate::observe::sanitise;

/// `--in PATH[:/tmp/…]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CopyIn {
    /// A file or folder of the host.
    pub from: PathBuf,
    /// Where it goes.
    pub to: String,
}

/// `--out /tmp/…:DIR`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CopyOut {
    /// A file or folder of the sandbox.
    pub from: String,
    /// A folder of the host.
    pub to: PathBuf,
}

impl FromStr for CopyIn {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        // The last `:/tmp` divides, so that paths of the host may hold colons.
        let divided = text.rmatch_indices(":/").find(|(at, _)| is_in_tmp(&text[at + 1..])).map(|(at, _)| at);
        if let Some(at) = divided {
            let (from, to) = (&text[..at], &text[at + 1..]);
            if from.is_empty() {
                return Err("nothing stands before the colon".to_owned());
            }
            return Ok(Self { from: PathBuf::from(from), to: to.to_owned() });
        }
        let from = PathBuf::from(text);
        if let Some((_, to)) = text.rsplit_once(":/").filter(|_| !from.exists()) {
            let to = sanitise::line(to);
            return Err(format!("/{to} is not below /tmp, the only place that can be written"));
        }
        let name = match from.file_name() {
            Some(name) => name.to_owned(),
            // `.`, `..` and `/` have a name once they are resolved.
            None => {
                from.canonicalize().ok().and_then(|path| path.file_name().map(ToOwned::to_owned)).unwrap_or_default()
            }
        };
        match name.to_str() {
            Some(name) if !name.is_empty() => Ok(Self { to: format!("/tmp/{name}"), from }),
            _ => Err("it has no usable name; say where it goes: PATH:/tmp/…".to_owned()),
        }
    }
}

impl CopyIn {
    /// Makes sure that there is something to copy.
    pub(super) fn check(&self) -> Result<(), Failure> {
        match self.from.symlink_metadata() {
            Ok(_) => Ok(()),
            Err(error) => Err(Failure::usage(
                format!("--in {}: {error}", self.from.display()),
                "name a file or folder of this machine: --in PATH[:/tmp/…]",
            )),
        }
    }
}

impl FromStr for CopyOut {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (from, to) = text.split_once(':').ok_or("say where it goes: /tmp/…:DIR")?;
        if !is_in_tmp(from) {
            return Err(format!("{} is not below /tmp", sanitise::line(from)));
        }
        if to.is_empty() {
            return Err("no folder stands after the colon".to_owned());
        }
        if Path::new(to).exists() && !Path::new(to).is_dir() {
            return Err(format!("{} is not a folder", sanitise::line(to)));
        }
        Ok(Self { from: from.to_owned(), to: PathBuf::from(to) })
    }
}

/// True for /tmp and paths that stay below it.
fn is_in_tmp(path: &str) -> bool {
    let below = path == "/tmp" || path.starts_with("/tmp/");
    below && !path.split('/').any(|part| part == "..") && !path.contains('\0')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn copy_in(text: &str) -> Result<(String, String), String> {
        text.parse::<CopyIn>().map(|copy| (copy.from.display().to_string(), copy.to))
    }

    fn copy_out(text: &str) -> Result<(String, String), String> {
        text.parse::<CopyOut>().map(|copy| (copy.from, copy.to.display().to_string()))
    }

    fn pair(from: &str, to: &str) -> (String, String) {
        (from.to_owned(), to.to_owned())
    }

    #[test]
    fn copies_in_go_to_tmp() {
        assert_eq!(copy_in("a/b.txt"), Ok(pair("a/b.txt", "/tmp/b.txt")));
        assert_eq!(copy_in("a/b/"), Ok(pair("a/b/", "/tmp/b")));
        assert_eq!(copy_in("a:/tmp/x/y"), Ok(pair("a", "/tmp/x/y")));
        assert_eq!(copy_in("a:b:/tmp"), Ok(pair("a:b", "/tmp")));
        assert_eq!(copy_in("a:b"), Ok(pair("a:b", "/tmp/a:b")));
        insta::assert_snapshot!(copy_in("a:/etc/x").unwrap_err(), @"/etc/x is not below /tmp, the only place that can be written");
        insta::assert_snapshot!(copy_in("a:/tmp/../etc").unwrap_err(), @"/tmp/../etc is not below /tmp, the only place that can be written");
        insta::assert_snapshot!(copy_in(":/tmp/x").unwrap_err(), @"nothing stands before the colon");
        insta::assert_snapshot!(copy_in("/").unwrap_err(), @"it has no usable name; say where it goes: PATH:/tmp/…");
    }

    #[test]
    fn copies_out_come_from_tmp() {
        assert_eq!(copy_out("/tmp/x:out"), Ok(pair("/tmp/x", "out")));
        assert_eq!(copy_out("/tmp/x:/tmp"), Ok(pair("/tmp/x", "/tmp")));
        insta::assert_snapshot!(copy_out("/tmp/x").unwrap_err(), @"say where it goes: /tmp/…:DIR");
        insta::assert_snapshot!(copy_out("/etc/x:out").unwrap_err(), @"/etc/x is not below /tmp");
        insta::assert_snapshot!(copy_out("/tmp/../etc:out").unwrap_err(), @"/tmp/../etc is not below /tmp");
        insta::assert_snapshot!(copy_out("/tmp/x:").unwrap_err(), @"no folder stands after the colon");
        insta::assert_snapshot!(copy_out("/tmp/x:/dev/null").unwrap_err(), @"/dev/null is not a folder");
    }
}
