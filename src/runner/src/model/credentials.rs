//! Keys of providers: where they are looked for, and what a file with one must be like.
//!
//! The environment comes first: a variable that is set for one command wins over what is on disk, and an empty one is no
//! key. Then `credentials/<provider>_key/default/token` below the configuration folder of the user. Nothing here can
//! print a key: errors name places only, and [`Credential`] shows its origin.

use std::ffi::OsString;
use std::fmt;
use std::fs::File;
use std::io::Read;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{OFlag, OpenHow, ResolveFlag, openat2};
use secrecy::SecretString;

use crate::project::Provider;

/// Longest key in bytes. Real ones have some hundred at most; a larger file is not a key.
const MAX_BYTES: u64 = 8 * 1024;

/// A provider's key.
#[derive(Clone)]
pub struct Credential {
    /// The key.
    pub secret: SecretString,
    /// Where it was.
    pub origin: Origin,
}

impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a key from {}", self.origin)
    }
}

/// Where a key was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// An environment variable.
    Variable(&'static str),
    /// A file.
    File(PathBuf),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Variable(name) => f.write_str(name),
            Self::File(path) => write!(f, "{}", path.display()),
        }
    }
}

/// Why a key that is there cannot be used. No message holds any part of it.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum CredentialError {
    /// Others could have read it.
    #[error("the key in {} may be read by others: its mode is {mode:04o}; run `chmod 600 {}`", .path.display(), .path.display())]
    Mode {
        /// The file.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// Somebody else put it there.
    #[error("the key in {} belongs to uid {owner}, not to you (uid {you}) or root; put your own there", path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
        /// Its owner.
        owner: u32,
        /// Who asks.
        you: u32,
    },
    /// The file cannot be read, or is none.
    #[error("the key in {} cannot be read: {why}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why, with the remedy.
        why: String,
    },
    /// What is there is no key.
    #[error("the key in {origin} {why}")]
    NotAKey {
        /// Where it is.
        origin: Origin,
        /// What is wrong, with the remedy.
        why: String,
    },
}

/// The key of `provider`: from its environment variable, else from its file; `None` when there is neither.
///
/// # Errors
/// One of them is there and cannot be used.
pub fn find(provider: Provider) -> Result<Option<Credential>, CredentialError> {
    let folder = folder(std::env::var_os("XDG_CONFIG_HOME"), std::env::var_os("HOME"));
    let variable = std::env::var_os(provider.key_variable());
    find_in(provider, variable, folder.as_deref(), nix::unistd::geteuid().as_raw())
}

/// Where the file with the key of `provider` would be, for messages.
pub fn file_of(provider: Provider) -> PathBuf {
    let folder = folder(std::env::var_os("XDG_CONFIG_HOME"), std::env::var_os("HOME"));
    folder.unwrap_or_else(|| PathBuf::from("~/.config/runner")).join(below_folder(provider))
}

/// The user's configuration folder. A relative path is ignored, as the XDG base directory specification says.
fn folder(config_home: Option<OsString>, home: Option<OsString>) -> Option<PathBuf> {
    let absolute = |value: Option<OsString>| value.map(PathBuf::from).filter(|path| path.is_absolute());
    let config = absolute(config_home).or_else(|| absolute(home).map(|home| home.join(".config")))?;
    Some(config.join("runner"))
}

fn below_folder(provider: Provider) -> String {
    format!("credentials/{provider}_key/default/token")
}

fn find_in(
    provider: Provider,
    variable: Option<OsString>,
    folder: Option<&Path>,
    me: u32,
) -> Result<Option<Credential>, CredentialError> {
    if let Some(value) = variable.filter(|value| !value.is_empty()) {
        let origin = Origin::Variable(provider.key_variable());
        return key(value.into_vec(), origin).map(Some);
    }
    let Some(folder) = folder else { return Ok(None) };
    let path = folder.join(below_folder(provider));
    match open(folder, &below_folder(provider), &path)? {
        Some(file) => key(read(file, &path, me)?, Origin::File(path)).map(Some),
        None => Ok(None),
    }
}

/// Opens the file. A link may lead to another place below the folder and nowhere else, so that nobody makes us send
/// another secret of the user as a key; a FIFO does not block.
fn open(folder: &Path, name: &str, path: &Path) -> Result<Option<File>, CredentialError> {
    let unreadable = |why: &str| CredentialError::Unreadable { path: path.to_owned(), why: why.to_owned() };
    let directory = match File::options().read(true).custom_flags(OFlag::O_DIRECTORY.bits()).open(folder) {
        Ok(directory) => directory,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => {
            let folder = folder.display();
            return Err(unreadable(&format!(
                "{folder}: {error}; make it a folder that is yours to read, or remove it"
            )));
        }
    };
    let how = OpenHow::new()
        .flags(OFlag::O_RDONLY | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC | OFlag::O_NOCTTY)
        .resolve(ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_MAGICLINKS);
    match openat2(directory.as_fd(), name, how) {
        Ok(file) => Ok(Some(File::from(file))),
        Err(Errno::ENOENT) => Ok(None),
        Err(Errno::EXDEV) => {
            Err(unreadable(&format!("it is a link that leaves {}; put the key itself there", folder.display())))
        }
        Err(Errno::ENXIO) => Err(unreadable("it is a socket or a device; put a file with the key there, or remove it")),
        Err(error) => Err(unreadable(&format!("{}; see that it is yours to read, or remove it", error.desc()))),
    }
}

fn read(mut file: File, path: &Path, me: u32) -> Result<Vec<u8>, CredentialError> {
    let unreadable = |why: String| CredentialError::Unreadable { path: path.to_owned(), why };
    let facts = file.metadata().map_err(|error| unreadable(error.to_string()))?;
    if !facts.is_file() {
        return Err(unreadable("it is not a regular file; put a file with the key there, or remove it".to_owned()));
    }
    let owner = facts.uid();
    if owner != me && owner != 0 {
        return Err(CredentialError::Foreign { path: path.to_owned(), owner, you: me });
    }
    let mode = facts.mode() & 0o7777;
    if !matches!(mode, 0o600 | 0o400) {
        return Err(CredentialError::Mode { path: path.to_owned(), mode });
    }
    // One buffer that never grows: no second copy of the key is left in memory.
    let mut bytes = Vec::with_capacity(usize::try_from(MAX_BYTES).unwrap_or(usize::MAX) + 1);
    (&mut file).take(MAX_BYTES + 1).read_to_end(&mut bytes).map_err(|error| unreadable(error.to_string()))?;
    if bytes.len() as u64 > MAX_BYTES {
        return Err(unreadable(format!("it has more than {MAX_BYTES} bytes; put the key there and nothing else")));
    }
    Ok(bytes)
}

/// The key in these bytes: line ends behind it do not count, and everything in it can stand in an HTTP header.
fn key(mut bytes: Vec<u8>, origin: Origin) -> Result<Credential, CredentialError> {
    while matches!(bytes.last(), Some(b'\n' | b'\r')) {
        bytes.pop();
    }
    let wrong = |why: String| CredentialError::NotAKey { origin: origin.clone(), why };
    if bytes.is_empty() {
        return Err(wrong("is empty; put the key there, or remove it".to_owned()));
    }
    if let Some(at) = bytes.iter().position(|byte| !byte.is_ascii_graphic()) {
        return Err(wrong(format!(
            "has a space, a line end, a control character or a letter outside ASCII at byte {}; put the key there and nothing else",
            at + 1
        )));
    }
    let secret = String::from_utf8(bytes).map_err(|_| wrong("is not text".to_owned()))?;
    Ok(Credential { secret: SecretString::from(secret), origin })
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, chown, symlink};

    use secrecy::ExposeSecret;

    use super::*;

    const KEY: &str = "sk-ant-very-secret";

    /// A configuration folder with `text` as Anthropic's key.
    struct Folder(tempfile::TempDir);

    impl Folder {
        fn with(text: impl AsRef<[u8]>) -> Self {
            let folder = Self(tempfile::tempdir().unwrap());
            fs::create_dir_all(folder.token().parent().unwrap()).unwrap();
            fs::write(folder.token(), text).unwrap();
            folder.mode(0o600)
        }

        fn token(&self) -> PathBuf {
            self.0.path().join("credentials/anthropic_key/default/token")
        }

        fn mode(self, mode: u32) -> Self {
            fs::set_permissions(self.token(), fs::Permissions::from_mode(mode)).unwrap();
            self
        }

        fn find(&self, variable: Option<&str>) -> Result<Option<Credential>, CredentialError> {
            let me = nix::unistd::geteuid().as_raw();
            find_in(Provider::Anthropic, variable.map(OsString::from), Some(self.0.path()), me)
        }

        /// The error, without the folder's changing name.
        fn error(&self, variable: Option<&str>) -> String {
            let error = self.find(variable).unwrap_err();
            assert!(!format!("{error:?}{error}").contains("secret"), "{error:?}");
            error.to_string().replace(self.0.path().to_str().unwrap(), "~")
        }
    }

    fn shown(found: Result<Option<Credential>, CredentialError>) -> (String, Origin) {
        let found = found.unwrap().unwrap();
        assert!(!format!("{found:?}").contains("secret"), "{found:?}");
        (found.secret.expose_secret().to_owned(), found.origin)
    }

    /// M-KEY-1: the environment wins, an empty variable is no key, and without either there is none.
    #[test]
    fn the_environment_comes_before_the_file() {
        let folder = Folder::with(format!("{KEY}-file\n"));
        let variable = Origin::Variable("ANTHROPIC_API_KEY");
        assert_eq!(shown(folder.find(Some(KEY))), (KEY.to_owned(), variable));
        for variable in [None, Some("")] {
            let (key, origin) = shown(folder.find(variable));
            assert_eq!((key, origin), (format!("{KEY}-file"), Origin::File(folder.token())));
        }
        assert!(find_in(Provider::Openai, None, Some(folder.0.path()), 0).unwrap().is_none());
        assert!(find_in(Provider::Openai, None, Some(Path::new("/nonexistent")), 0).unwrap().is_none());
        assert!(find_in(Provider::Openai, None, None, 0).unwrap().is_none());
    }

    /// M-KEY-2: only the owner may be able to read it.
    #[test]
    fn a_file_that_others_may_read_is_refused() {
        for mode in [0o600, 0o400] {
            assert_eq!(shown(Folder::with(KEY).mode(mode).find(None)).0, KEY);
        }
        for mode in [0o644, 0o640, 0o604, 0o660, 0o602, 0o700, 0o4600] {
            let said = Folder::with(KEY).mode(mode).error(None);
            assert_eq!(
                said,
                format!(
                    "the key in ~/credentials/anthropic_key/default/token may be read by others: its mode is {mode:04o}; run \
                     `chmod 600 ~/credentials/anthropic_key/default/token`"
                )
            );
        }
    }

    /// M-KEY-2: nobody else's file is sent as a key, by whatever way it comes there.
    #[test]
    fn a_file_of_somebody_else_is_refused() {
        let folder = Folder::with(KEY);
        let token = folder.token();
        fs::rename(&token, folder.0.path().join("other")).unwrap();
        symlink("../../../other", &token).unwrap();
        assert_eq!(shown(folder.find(None)).0, KEY, "a link inside the folder is the user's own");
        fs::remove_file(&token).unwrap();
        symlink("/etc/hostname", &token).unwrap();
        insta::assert_snapshot!(folder.error(None), @"the key in ~/credentials/anthropic_key/default/token cannot be read: it is a link that leaves ~; put the key itself there");
        fs::remove_file(&token).unwrap();
        nix::unistd::mkfifo(&token, nix::sys::stat::Mode::S_IRUSR).unwrap();
        insta::assert_snapshot!(folder.error(None), @"the key in ~/credentials/anthropic_key/default/token cannot be read: it is not a regular file; put a file with the key there, or remove it");
        if nix::unistd::geteuid().is_root() {
            let folder = Folder::with(KEY);
            chown(folder.token(), Some(4242), None).unwrap();
            insta::assert_snapshot!(folder.error(None), @"the key in ~/credentials/anthropic_key/default/token belongs to uid 4242, not to you (uid 0) or root; put your own there");
        }
    }

    /// M-KEY-3: what could break out of an HTTP header is no key; line ends behind it do not count.
    #[test]
    fn only_what_can_be_a_key_is_one() {
        assert_eq!(shown(Folder::with(format!("{KEY}\r\n\n")).find(None)).0, KEY);
        let long = "secret".repeat(2000);
        insta::assert_snapshot!(Folder::with("\n").error(None), @"the key in ~/credentials/anthropic_key/default/token is empty; put the key there, or remove it");
        insta::assert_snapshot!(Folder::with(long).error(None), @"the key in ~/credentials/anthropic_key/default/token cannot be read: it has more than 8192 bytes; put the key there and nothing else");
        insta::assert_snapshot!(Folder::with("secret\r\nx-evil: 1").error(None), @"the key in ~/credentials/anthropic_key/default/token has a space, a line end, a control character or a letter outside ASCII at byte 7; put the key there and nothing else");
        insta::assert_snapshot!(Folder::with(b"secret\xff").error(None), @"the key in ~/credentials/anthropic_key/default/token has a space, a line end, a control character or a letter outside ASCII at byte 7; put the key there and nothing else");
        insta::assert_snapshot!(Folder::with(KEY).error(Some("secret key")), @"the key in ANTHROPIC_API_KEY has a space, a line end, a control character or a letter outside ASCII at byte 7; put the key there and nothing else");
    }

    #[test]
    fn the_folder_follows_the_base_directory_specification() {
        let folder = |config: &str, home: &str| super::folder(Some(config.into()), Some(home.into()));
        assert_eq!(folder("/c", "/home/a"), Some(PathBuf::from("/c/runner")));
        assert_eq!(folder("", "/home/a"), Some(PathBuf::from("/home/a/.config/runner")));
        assert_eq!(folder("relative", "/home/a"), Some(PathBuf::from("/home/a/.config/runner")));
        assert_eq!(folder("", ""), None);
    }
}
