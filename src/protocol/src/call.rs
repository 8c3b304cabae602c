//! Calls and their ends.

use serde::{Deserialize, Serialize};

/// One call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Call {
    /// Strictly increasing on its connection.
    pub id: u64,
    /// `session/turn/index`; at most [`crate::MAX_KEY`] bytes.
    pub key: String,
    /// Milliseconds after which the sandbox ends the call by itself.
    pub timeout_ms: u64,
    /// Length of the body in bytes, this frame's payload included; at most [`crate::MAX_BODY`].
    pub body: u64,
    /// What to do.
    pub request: Request,
}

/// What a call asks for. The first group goes to the control connection, the second to a file server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Request {
    /// Runs the body as a shell command. Ends with [`Outcome::Bash`], or with [`Outcome::Job`] when in the background.
    Bash {
        /// Return at once and let it run on as a job.
        background: bool,
    },
    /// Ends a job. Ends with [`Outcome::JobEnded`].
    StopJob {
        /// The name that [`Outcome::Job`] gave.
        job: String,
    },
    /// Starts a file server, which connects under this label. Ends with [`Outcome::Nothing`].
    OpenFiles {
        /// 0 replaces the resident worker (the old one is killed first); others are chosen by the host and never reused.
        label: u64,
    },
    /// Kills a file server. Ends with [`Outcome::Nothing`], also when it is gone already.
    CloseFiles {
        /// Its label.
        label: u64,
    },

    /// Reads a window of a text file, or an image. Ends with [`Outcome::Text`], [`Outcome::Image`] (its bytes come as
    /// chunks before) or [`Outcome::Binary`].
    Read {
        /// As the model gave it.
        path: String,
        /// First line, from 1.
        offset: Option<u64>,
        /// Most lines.
        limit: Option<u64>,
        /// False on the resident worker: an image then ends with [`Outcome::NeedsChild`].
        images: bool,
    },
    /// Replaces a file by the body. Ends with [`Outcome::Written`].
    Write {
        /// As the model gave it.
        path: String,
    },
    /// Replaces parts of a file. The body is the JSON of a `[Replacement]`. Ends with [`Outcome::Edited`].
    Edit {
        /// As the model gave it.
        path: String,
        /// Largest file in bytes that the sandbox's memory has room for; longer ones are refused.
        most: u64,
    },
    /// Lists a folder. Ends with [`Outcome::Listing`].
    Ls {
        /// As the model gave it; the working directory when absent.
        path: Option<String>,
        /// Most entries.
        limit: u64,
    },
    /// Searches the contents of files. Ends with [`Outcome::Matches`].
    Grep {
        /// A regular expression in Rust's syntax, or plain text when `literal`.
        pattern: String,
        /// The file or folder to search, as the model gave it; the working directory when absent.
        path: Option<String>,
        /// Files to search, as a glob; all when absent.
        glob: Option<String>,
        /// Letters match in either case.
        ignore_case: bool,
        /// The pattern means itself.
        literal: bool,
        /// Lines shown before and after each match.
        context: u64,
        /// Most matching lines shown.
        limit: u64,
        /// Search what ignore files exclude, too.
        include_ignored: bool,
    },
    /// Finds names. Ends with [`Outcome::Found`].
    Find {
        /// A glob for paths below `path`.
        pattern: String,
        /// The folder to look in, as the model gave it; the working directory when absent.
        path: Option<String>,
        /// Most names shown.
        limit: u64,
        /// Look at what ignore files exclude, too.
        include_ignored: bool,
    },
    /// Copies into the sandbox: entries and chunks follow from the host. Ends with [`Outcome::Copied`].
    Put {
        /// Where the first entry (whose own path is empty) goes; below /tmp.
        path: String,
    },
    /// Copies out of the sandbox: entries and chunks come from the sandbox. Ends with [`Outcome::Copied`].
    Get {
        /// What to copy; below /tmp.
        path: String,
        /// Refuse more bytes than this in all.
        max_bytes: u64,
        /// Refuse more entries than this in all.
        max_entries: u64,
    },
}

/// The end of a call. The frame's payload holds the text or bytes that the outcome speaks of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Done {
    /// The call.
    pub id: u64,
    /// How it ended.
    pub outcome: Outcome,
}

/// How a call ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Outcome {
    /// It could not be done. Nothing was changed.
    Failed {
        /// Machine-readable.
        cause: Cause,
        /// One lower-case sentence that names what was wrong and what to do.
        message: String,
    },
    /// Done, with nothing to say.
    Nothing,
    /// A command ended. The payload is the shown output: `head` bytes, then the tail.
    Bash(BashEnd),
    /// A job was started.
    Job {
        /// Its name, for `StopJob`.
        job: String,
        /// Path of its log in the sandbox.
        log: String,
    },
    /// A job was ended, or had ended before.
    JobEnded {
        /// How.
        end: End,
        /// It had ended before it was asked to.
        before: bool,
    },
    /// A window of a text file; the payload is its text, with invalid UTF-8 as it stands in the file.
    Text(TextWindow),
    /// An image; its bytes came as chunks.
    Image {
        /// `image/png`, `image/jpeg`, `image/gif` or `image/webp`.
        media_type: String,
        /// Width and height in pixels, as sent.
        size: (u32, u32),
        /// Width and height in pixels of the file, when it was scaled down.
        scaled_from: Option<(u32, u32)>,
        /// Bytes sent.
        bytes: u64,
    },
    /// A file that is neither text nor a known image.
    Binary {
        /// What its first bytes say it is, such as `ELF program` or `gzip archive`; `binary data` when nothing fits.
        kind: String,
        /// Bytes.
        bytes: u64,
    },
    /// The resident worker does not do this: ask a file server of its own.
    NeedsChild,
    /// A file was written.
    Written {
        /// The path after resolving `~`, `@` and the working directory.
        path: String,
        /// Bytes written.
        bytes: u64,
        /// The file was there before.
        replaced: bool,
    },
    /// A file was edited; the payload is the unified diff as UTF-8 text, or its first lines.
    Edited(Edited),
    /// A folder's entries: the payload is the JSON of a sorted `[ListEntry]`.
    Listing {
        /// The path after resolving `~`, `@` and the working directory.
        path: String,
        /// How many the payload holds: the first `limit`, fewer when the output limit was reached.
        shown: u64,
        /// How many there are in all.
        total: u64,
    },
    /// What a `Grep` found: the payload is lines of UTF-8, ready to be shown.
    Matches(Matches),
    /// What a `Find` found: the payload is sorted paths, one a line, of UTF-8.
    Found(Found),
    /// A copy ended.
    Copied {
        /// Regular files.
        files: u64,
        /// Bytes of their contents.
        bytes: u64,
        /// What was left out and why, one line each, at most 20 lines.
        skipped: Vec<String>,
    },
}

/// Why something did not work, for the journal and the model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// A command exited with a code other than 0.
    Exit,
    /// A command died of a signal.
    Signal,
    /// A time limit passed.
    Timeout,
    /// Somebody cancelled it.
    Cancelled,
    /// The memory limit was hit.
    Oom,
    /// The process limit was hit.
    Pids,
    /// /tmp is full.
    NoSpace,
    /// Not permitted.
    Denied,
    /// The sandbox is gone.
    SandboxGone,
    /// The container engine does not answer.
    EngineGone,
    /// The arguments or the file do not fit.
    Invalid,
    /// No such file, job or folder.
    NotFound,
    /// Another documented limit was hit.
    Limit,
    /// A restart came in between; the effect is unknown.
    Interrupted,
}

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum End {
    /// It exited with this code.
    Exited(i32),
    /// It died of this signal.
    Signalled(i32),
    /// Its time limit passed and it was killed.
    TimedOut,
    /// The host cancelled it.
    Cancelled,
    /// It was killed because another command left processes that only a kill of everything could end.
    SweptAway,
}

/// The end of a command and what is shown of its output.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BashEnd {
    /// How its shell ended.
    pub end: End,
    /// Bytes of the payload that come from the output's beginning; the rest comes from its end. Everything when `kept`
    /// and the omitted counts say that nothing was left out.
    pub head: u64,
    /// Bytes of output in all.
    pub total_bytes: u64,
    /// Lines of output in all; an unfinished last line counts.
    pub total_lines: u64,
    /// Bytes left out between head and tail.
    pub omitted_bytes: u64,
    /// Line ends (`\n`) left out between head and tail.
    pub omitted_lines: u64,
    /// File in the sandbox that holds the full output (or its head and tail when even that was too long).
    pub kept: Option<String>,
    /// True when the kept file itself lacks a middle part.
    pub kept_is_cut: bool,
    /// /tmp had no bytes or no inodes left when the command ended.
    pub full: Option<Space>,
    /// Milliseconds from spawn to end.
    pub duration_ms: u64,
}

/// Size and use of /tmp.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Space {
    /// Bytes in all.
    pub bytes: u64,
    /// Bytes in use.
    pub bytes_used: u64,
    /// Inodes in all.
    pub inodes: u64,
    /// Inodes in use.
    pub inodes_used: u64,
}

/// What part of a text file the payload shows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TextWindow {
    /// The path after resolving `~`, `@` and the working directory.
    pub path: String,
    /// First line shown, from 1; 0 for an empty file.
    pub first: u64,
    /// Last line shown; 0 for an empty file.
    pub last: u64,
    /// Lines in the file.
    pub total_lines: u64,
    /// Bytes in the file.
    pub total_bytes: u64,
    /// Lines that were clipped, with their length in characters; at most 100 of them.
    pub clipped: Vec<(u64, u64)>,
    /// The byte or line limit ended the window before `limit` did.
    pub cut: bool,
}

/// One part of a file to replace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Replacement {
    /// What stands there, exactly once.
    pub old: String,
    /// What is to stand there.
    pub new: String,
}

/// What an edit did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Edited {
    /// The path after resolving `~`, `@` and the working directory.
    pub path: String,
    /// Bytes of the file as it is now.
    pub bytes: u64,
    /// Parts that were replaced.
    pub edits: u64,
    /// Which of them (from 0) matched only with differences in blanks, quotes or dashes; the first 100.
    pub tolerant: Vec<u64>,
    /// Lines of the whole diff.
    pub diff_lines: u64,
    /// Bytes of the whole diff as text.
    pub diff_bytes: u64,
    /// Lines of it in the payload: all of them unless a limit was reached.
    pub shown_lines: u64,
}

/// One name in a folder.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ListEntry {
    /// Its name; invalid UTF-8 as U+FFFD.
    pub name: String,
    /// What it is.
    pub kind: ListKind,
}

/// What a name in a folder stands for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum ListKind {
    /// A regular file or a special one.
    File,
    /// A folder.
    Folder,
    /// A symbolic link, with its target.
    Link(String),
}

/// What a search of contents found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Matches {
    /// Matching lines that the payload shows.
    pub shown: u64,
    /// The output limit, and not the limit of the call, kept the others out.
    pub cut: bool,
    /// Matching lines that were met.
    pub matches: u64,
    /// Files that they are in.
    pub matched_files: u64,
    /// Files that were searched.
    pub files: u64,
    /// What was not searched.
    pub skipped: Skipped,
    /// Why there may be more matches than were met.
    pub partial: Option<Partial>,
}

/// What a search of names found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Found {
    /// Paths that the payload shows.
    pub shown: u64,
    /// The output limit, and not the limit of the call, kept the others out.
    pub cut: bool,
    /// Paths that fit the pattern.
    pub total: u64,
    /// Names that were looked at.
    pub names: u64,
    /// What was not looked at.
    pub skipped: Skipped,
    /// Why there may be more paths than were met.
    pub partial: Option<Partial>,
}

/// What a search left out.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Skipped {
    /// Files and folders that ignore files exclude; a folder counts once, with all that is in it.
    pub ignored: u64,
    /// Files that hold a NUL byte or are UTF-16.
    pub binary: u64,
    /// Files, folders and ignore files that could not be read, and folders too deep to go to.
    pub unreadable: u64,
    /// Files over the size limit, and files with a line over the line limit.
    pub too_large: u64,
    /// Pipes, sockets and devices, and file systems that the kernel makes up.
    pub special: u64,
}

/// Why a search ended before it had seen everything.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Partial {
    /// The time limit of searches passed.
    Time,
    /// Everything that may be shown was found, and counting the rest would have taken long.
    Counting,
}

/// One file, folder or link of a copy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    /// Path below the copied root, `/` between parts, never absolute, never with `.` or `..`; empty for the root itself.
    pub path: String,
    /// What it is.
    pub kind: EntryKind,
}

/// What an entry of a copy is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum EntryKind {
    /// A regular file; exactly `size` bytes follow in chunks.
    File {
        /// Bytes.
        size: u64,
        /// Somebody may execute it.
        executable: bool,
    },
    /// A folder.
    Folder,
    /// A symbolic link whose target stays below the copied root.
    Link {
        /// Its target, as it stands in the link.
        target: String,
    },
}
