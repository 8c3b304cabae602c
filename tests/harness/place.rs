//! A temporary project with a state directory, and `runner` started in it.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::Mutex;

use serde_json::Value;
use tempfile::TempDir;

use super::desk::Desk;
use super::engine::containers_of;

/// The image of agents that name none.
pub(crate) const MINIMAL: &str = "runner/minimal";

/// The image with the tools of a developer.
pub(crate) const BASE: &str = "runner/base";

/// A project with one agent, `worker`, on the script model, and a state directory. When it is dropped, nothing of it may
/// be left on the engine.
pub(crate) struct Place {
    folder: TempDir,
    settled: bool,
    /// What its agents run in, for the message of a test that fails.
    image: &'static str,
}

/// A finished run of the program.
#[derive(Debug)]
pub(crate) struct Ran {
    /// Its exit code; 128 + n when signal n ended it.
    pub(crate) code: i32,
    /// What it printed.
    pub(crate) stdout: String,
    /// What it complained of.
    pub(crate) stderr: String,
}

impl Place {
    /// A new place. The worker's script has one turn that says `done`.
    pub(crate) fn new() -> Self {
        Self::on(MINIMAL)
    }

    /// A new place for each of our images: what a tool promises holds on all of them.
    pub(crate) fn on_each_image() -> impl Iterator<Item = Self> {
        [MINIMAL, BASE].into_iter().map(Self::on)
    }

    /// A new place whose agents run in this image.
    pub(crate) fn on(image: &'static str) -> Self {
        image_once(image);
        let mut place = Self::bare();
        place.image = image;
        let local = if image == MINIMAL { String::new() } else { format!("[local]\nimage = \"{image}\"\n") };
        place.write("config.toml", format!("[models.script]\nprovider = \"script\"\nfile = \"script.json\"\n{local}"));
        place.script(&serde_json::json!([{"text": "done"}]));
        place.agent("worker", "");
        place
    }

    /// A place without a project, and without a look at the engine.
    pub(crate) fn bare() -> Self {
        let folder = tempfile::Builder::new().prefix("runner-test-").tempdir().expect("a folder below /tmp");
        fs::create_dir(folder.path().join("project")).expect("a fresh folder");
        Self { folder, settled: false, image: MINIMAL }
    }

    /// The folder above the project and the state directory.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The project's folder.
    pub(crate) fn project(&self) -> PathBuf {
        self.folder.path().join("project")
    }

    /// The state directory.
    pub(crate) fn state(&self) -> PathBuf {
        self.folder.path().join("state")
    }

    /// Writes a file of the project.
    pub(crate) fn write(&self, path: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.project().join(path);
        fs::create_dir_all(path.parent().expect("a file has a folder")).expect("the project is writable");
        fs::write(&path, content).expect("the project is writable");
        path
    }

    /// Writes an agent with this `config.toml`.
    pub(crate) fn agent(&self, name: &str, config: &str) {
        let skill = format!("---\nname: {name}\ndescription: Works in a test.\n---\n\nDo what the script says.\n");
        self.write(&format!("agents/{name}/SKILL.md"), skill);
        self.write(&format!("agents/{name}/config.toml"), config);
    }

    /// Sets the turns of the script.
    pub(crate) fn script(&self, turns: &Value) {
        self.write("script.json", serde_json::json!({"turns": turns}).to_string());
    }

    /// The program with these arguments, in the project, with an environment of its own.
    pub(crate) fn command<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Command {
        let mut command = Command::new(program());
        command.args(args).current_dir(self.project()).env("RUNNER_STATE", self.state()).env_remove("RUST_LOG");
        // No key of whoever runs the tests is sent anywhere.
        command.env("XDG_CONFIG_HOME", self.folder().join("config"));
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().ends_with("_API_KEY")) {
            command.env_remove(name);
        }
        command.stdin(Stdio::null());
        command
    }

    /// Runs the program to its end.
    pub(crate) fn run<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Ran {
        Ran::from(self.command(args).output().expect("the program starts"))
    }

    /// A sandbox of the agent `worker` that takes tool calls.
    pub(crate) fn desk(&self) -> Desk {
        self.desk_with("worker", &[])
    }

    /// A sandbox of this agent with more arguments to `runner tool`.
    pub(crate) fn desk_with(&self, agent: &str, more: &[&str]) -> Desk {
        let mut args = vec!["tool", "--agent", agent];
        args.extend_from_slice(more);
        args.push("-");
        Desk::start(self.command(args))
    }

    /// Names of this place's containers on the engine, running or not.
    pub(crate) fn containers(&self) -> Vec<String> {
        containers_of(&self.state())
    }

    /// Folders of sessions in the state directory.
    pub(crate) fn session_folders(&self) -> Vec<PathBuf> {
        let Ok(entries) = fs::read_dir(self.state().join("sessions")) else { return Vec::new() };
        entries.map(|entry| entry.expect("a readable folder").path()).collect()
    }

    /// Asserts that no container and no session folder is left.
    pub(crate) fn assert_clean(&self) {
        assert_eq!(self.containers(), Vec::<String>::new(), "containers are left");
        assert_eq!(self.session_folders(), Vec::<PathBuf>::new(), "session folders are left");
    }

    /// Says that the test leaves something on purpose and has removed it itself.
    pub(crate) fn settle(&mut self) {
        self.settled = true;
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the image was {}", self.image);
        }
        if !self.settled && !std::thread::panicking() {
            self.assert_clean();
        }
        super::engine::remove_containers_of(&self.state());
    }
}

impl Ran {
    /// Asserts an exit code, with all that was printed in the message.
    #[track_caller]
    pub(crate) fn exits(&self, code: i32) -> &Self {
        assert_eq!(self.code, code, "{self}");
        self
    }

    /// Asserts that the complaint contains this.
    #[track_caller]
    pub(crate) fn complains(&self, part: &str) -> &Self {
        assert!(self.stderr.contains(part), "no {part:?} in {self}");
        self
    }

    /// Asserts that the output contains this.
    #[track_caller]
    pub(crate) fn prints(&self, part: &str) -> &Self {
        assert!(self.stdout.contains(part), "no {part:?} in {self}");
        self
    }

    /// The output as one JSON value.
    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error} in {self}"))
    }

    /// The output as JSON lines.
    #[track_caller]
    pub(crate) fn json_lines(&self) -> Vec<Value> {
        let parse = |line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error} in {self}"));
        self.stdout.lines().map(parse).collect()
    }
}

impl From<Output> for Ran {
    fn from(output: Output) -> Self {
        use std::os::unix::process::ExitStatusExt;
        let code = output.status.code().or_else(|| Some(128 + output.status.signal()?)).expect("it ended");
        let text = |bytes| String::from_utf8(bytes).expect("the program prints UTF-8");
        Self { code, stdout: text(output.stdout), stderr: text(output.stderr) }
    }
}

impl std::fmt::Display for Ran {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut text = String::new();
        let _ = write!(text, "exit code {}\n--- stdout\n{}\n--- stderr\n{}", self.code, self.stdout, self.stderr);
        out.write_str(&text)
    }
}

/// The program under test. A copy is named when the tests run as another user.
pub(crate) fn program() -> PathBuf {
    std::env::var_os("RUNNER_BIN").map_or_else(|| PathBuf::from(env!("CARGO_BIN_EXE_runner")), PathBuf::from)
}

/// Makes sure that an image of ours is on the engine. `make test` has made both already; this is for a test that is run by
/// itself, and costs one question.
fn image_once(image: &str) {
    static MADE: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    let mut made = MADE.lock().expect("no test panics while it builds an image");
    if !made.insert(image.to_owned()) || super::engine::has_image(&format!("{image}:latest")) {
        return;
    }
    let place = Place::bare();
    let mut build = place.command(["image", "build"]);
    if image == BASE {
        build.args(["--base", "debian"]);
    }
    let target = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/static");
    if std::env::var_os("RUNNER_STATIC_DIR").is_none() && target.is_dir() {
        build.env("RUNNER_STATIC_DIR", target);
    }
    Ran::from(build.output().expect("the program starts")).exits(0);
}
