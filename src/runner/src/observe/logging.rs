//! Logs: JSON lines, never coloured, in a file of the state directory or on standard error.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;

use super::sanitise;

/// Above this size a log is put aside when a runner starts; one such is kept.
const ENOUGH: u64 = 16 * 1024 * 1024;

/// The variable that says what is logged, as in `runner=debug,info`.
pub const VARIABLE: &str = "RUNNER_LOG";

/// Where log lines go.
#[derive(Debug, Clone, Copy)]
pub enum Destination<'a> {
    /// `runner.log` in this folder.
    Folder(&'a Path),
    /// Standard error.
    Stderr,
}

/// Why logging could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum LoggingError {
    /// The filter cannot be read.
    #[error("RUNNER_LOG={text:?} is not a filter such as \"info\" or \"runner=debug\": {reason}")]
    Filter {
        /// As it was given.
        text: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The file cannot be written.
    #[error("cannot write the log {path}: {source}")]
    File {
        /// The file.
        path: String,
        /// What the system said.
        source: io::Error,
    },
}

/// Sends this process's log lines there, filtered by `filter` (`info` when absent). The first call of a process counts.
pub fn init(destination: Destination<'_>, filter: Option<&str>) -> Result<(), LoggingError> {
    let text = filter.unwrap_or("info");
    let filter =
        EnvFilter::try_new(text).map_err(|e| LoggingError::Filter { text: text.to_owned(), reason: e.to_string() })?;
    let sink = match destination {
        Destination::Stderr => Sink::Stderr,
        Destination::Folder(folder) => {
            let path = folder.join("runner.log");
            let file = open(&path).map_err(|source| LoggingError::File { path: path.display().to_string(), source })?;
            Sink::File(Arc::new(file))
        }
    };
    let subscriber = tracing_subscriber::fmt().json().with_ansi(false).with_env_filter(filter).with_writer(sink);
    // Somebody (a test, an embedding program) has set one up already: theirs counts.
    let _ = subscriber.try_init();
    Ok(())
}

fn open(path: &Path) -> io::Result<File> {
    if std::fs::metadata(path).is_ok_and(|found| found.len() > ENOUGH) {
        std::fs::rename(path, path.with_extension("log.old"))?;
    }
    // A named pipe in its place is an error; it would otherwise never open.
    OpenOptions::new().append(true).create(true).mode(0o600).custom_flags(nix::libc::O_NONBLOCK).open(path)
}

#[derive(Clone)]
enum Sink {
    Stderr,
    File(Arc<File>),
}

impl<'a> MakeWriter<'a> for Sink {
    type Writer = Line;

    fn make_writer(&'a self) -> Line {
        Line { sink: self.clone(), bytes: Vec::new() }
    }
}

/// Collects one line and writes it at once, so that lines of several processes do not mix.
struct Line {
    sink: Sink,
    bytes: Vec<u8>,
}

impl Write for Line {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        let text = String::from_utf8_lossy(&self.bytes);
        let safe = sanitise::json(&text);
        // A log that cannot be written has nobody to be told.
        let _ = match &self.sink {
            Sink::Stderr => io::stderr().lock().write_all(safe.as_bytes()),
            Sink::File(file) => (&**file).write_all(safe.as_bytes()),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// bug 18: nothing in a value or a field's name starts a line or reaches the terminal.
    #[test]
    fn a_line_stays_a_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("runner.log");
        let sink = Sink::File(Arc::new(open(&path).unwrap()));
        let subscriber = tracing_subscriber::fmt().json().with_ansi(false).with_writer(sink).finish();
        let nasty = "\u{1b}[2J\u{9b}31m\u{202e}\n{\"level\":\"error\"\u{7}";
        tracing::subscriber::with_default(subscriber, || {
            tracing::warn!(name = nasty, debug = ?nasty, "{nasty}");
        });
        let written = std::fs::read_to_string(&path).unwrap();
        assert_eq!(written.matches('\n').count(), 1);
        assert!(!written.trim_end().chars().any(sanitise::is_unsafe), "{written:?}");
        let line: serde_json::Value = serde_json::from_str(&written).unwrap();
        assert_eq!(line["fields"]["name"], nasty);
        assert_eq!(line["fields"]["message"], nasty);
        assert_eq!(line["level"], "WARN");
    }

    #[test]
    fn a_broken_filter_is_named() {
        let error = init(Destination::Stderr, Some("runner=loud")).unwrap_err();
        assert!(error.to_string().starts_with("RUNNER_LOG=\"runner=loud\" is not a filter"), "{error}");
    }

    #[test]
    fn a_named_pipe_in_its_place_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("runner.log");
        nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
        assert!(open(&path).is_err());
    }

    #[test]
    fn a_long_log_is_put_aside() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("runner.log");
        File::create(&path).unwrap().set_len(ENOUGH + 1).unwrap();
        assert_eq!(open(&path).unwrap().metadata().unwrap().len(), 0);
        assert!(folder.path().join("runner.log.old").exists());
    }
}
