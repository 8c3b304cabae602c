//! What the host's welcome says about this session, the same for PID 1 and every file server.

use std::path::PathBuf;

use protocol::Ids;

/// The session this toolbox works for.
#[derive(Debug, Clone)]
pub(crate) struct Session {
    /// User and group ids.
    pub(crate) ids: Ids,
    /// The whole environment of commands, in order.
    pub(crate) environment: Vec<(String, String)>,
    /// Working directory of commands and base of relative paths.
    pub(crate) directory: PathBuf,
    /// What `~` stands for: HOME of the environment.
    pub(crate) home: PathBuf,
}

impl From<&protocol::Welcome> for Session {
    fn from(welcome: &protocol::Welcome) -> Self {
        let home = welcome.environment.iter().find(|(name, _)| name == "HOME").map_or("/tmp/home", |(_, value)| value);
        Self {
            ids: welcome.ids,
            environment: welcome.environment.clone(),
            directory: PathBuf::from(&welcome.directory),
            home: PathBuf::from(home),
        }
    }
}
