//! The database file: opening it, its schema and its migrations.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags, ffi};

use super::StoreError;
use super::migrations::MIGRATIONS;

/// "runn" in ASCII: `PRAGMA application_id` of a store of ours.
const APPLICATION: i64 = 0x7275_6e6e;

/// The newest schema.
pub(super) const VERSION: usize = MIGRATIONS.len();

/// How long several processes wait for each other before one gives up.
const BUSY: Duration = Duration::from_secs(10);

/// Opens the database in this folder, creates it or brings it to the newest schema.
///
/// Processes that come at once do this one after the other, under an flock: SQLite's switch to WAL does not wait.
pub(super) fn prepare(folder: &Path) -> Result<PathBuf, StoreError> {
    let path = folder.join("store.db");
    let lock_path = folder.join("store.lock");
    let _lock = lock(&lock_path).map_err(|e| translate_io(&lock_path, &e))?;
    // SQLite's own files take the mode of this one.
    open_private(&path).map_err(|e| translate_io(&path, &e))?;

    let connection = connect(&path)?;
    let failed = |e: rusqlite::Error| translate(&path, &e);
    let application: i64 = pragma(&connection, "application_id").map_err(failed)?;
    let tables: i64 =
        connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0)).map_err(failed)?;
    if application != APPLICATION && tables > 0 {
        return Err(StoreError::Foreign { path });
    }
    let found: i64 = pragma(&connection, "user_version").map_err(failed)?;
    let known = i64::try_from(MIGRATIONS.len()).expect("few migrations");
    if found > known {
        return Err(StoreError::Newer { path, found, known });
    }
    let mode: String = connection.query_row("PRAGMA journal_mode = WAL", [], |row| row.get(0)).map_err(failed)?;
    if mode != "wal" {
        let reason = format!("its file system does not support write-ahead logging (SQLite says {mode:?})");
        return Err(StoreError::Io { path, reason });
    }
    for (version, migration) in (1..).zip(MIGRATIONS).skip(usize::try_from(found).unwrap_or(0)) {
        let step = format!(
            "BEGIN IMMEDIATE; {migration} PRAGMA application_id = {APPLICATION}; PRAGMA user_version = {version}; COMMIT;"
        );
        connection.execute_batch(&step).map_err(failed)?;
    }
    Ok(path)
}

/// Opens one more connection to a prepared database.
pub(super) fn connect(path: &Path) -> Result<Connection, StoreError> {
    let failed = |e: rusqlite::Error| translate(path, &e);
    let mut connection = Connection::open(path).map_err(failed)?;
    connection.busy_handler(Some(wait_a_little)).map_err(failed)?;
    connection.set_prepared_statement_cache_capacity(128);
    // Checkpoints have a thread of their own.
    connection.pragma_update(None, "wal_autocheckpoint", 0).map_err(failed)?;
    connection.pragma_update(None, "synchronous", "NORMAL").map_err(failed)?;
    connection.pragma_update(None, "trusted_schema", false).map_err(failed)?;
    Ok(connection)
}

/// Opens a database that no other process has open, without the file of shared memory that others would need: the index
/// of the log is built in this process's own. Fails while somebody else has it open.
pub(super) fn connect_alone(path: &Path) -> Result<Connection, StoreError> {
    let failed = |e: rusqlite::Error| translate(path, &e);
    let connection = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_WRITE).map_err(failed)?;
    connection.pragma_update(None, "trusted_schema", false).map_err(failed)?;
    // Closing must not copy the log into the database: there is no room.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true).map_err(failed)?;
    connection.query_row("PRAGMA locking_mode = EXCLUSIVE", [], |_| Ok(())).map_err(failed)?;
    connection.query_row("SELECT count(*) FROM sessions", [], |_| Ok(())).map_err(failed)?;
    Ok(connection)
}

pub(super) fn pragma(connection: &Connection, name: &str) -> Result<i64, rusqlite::Error> {
    connection.query_row(&format!("PRAGMA {name}"), [], |row| row.get(0))
}

/// Transactions here take microseconds, so the wait for another process's is short and frequent; SQLite's own handler
/// soon sleeps 100 ms at a time and starves whoever waits longest.
fn wait_a_little(attempt: i32) -> bool {
    const SHORT: i32 = 200;
    let pause = if attempt < SHORT { Duration::from_micros(100) } else { Duration::from_millis(1) };
    std::thread::sleep(pause);
    // A sleep takes a little longer than asked for; the bound is meant roughly.
    u128::try_from(attempt - SHORT).unwrap_or(0) < BUSY.as_millis()
}

fn open_private(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path)
}

fn lock(path: &Path) -> io::Result<Flock<File>> {
    let deadline = Instant::now() + BUSY;
    let mut file = open_private(path)?;
    loop {
        match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(lock) => return Ok(lock),
            Err((back, Errno::EWOULDBLOCK)) if Instant::now() < deadline => {
                file = back;
                std::thread::sleep(Duration::from_millis(2));
            }
            Err((_, errno)) => return Err(errno.into()),
        }
    }
}

/// Says what an error of the system means for the store.
fn translate_io(path: &Path, error: &io::Error) -> StoreError {
    let path = path.to_owned();
    match error.kind() {
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem | io::ErrorKind::NotFound => {
            StoreError::ReadOnly { path, reason: error.to_string() }
        }
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge => {
            StoreError::Full { path }
        }
        io::ErrorKind::WouldBlock => StoreError::Busy { path },
        _ => StoreError::Io { path, reason: error.to_string() },
    }
}

/// Says what an error of SQLite means for the store.
pub(super) fn translate(path: &Path, error: &rusqlite::Error) -> StoreError {
    let reason = error.to_string();
    let owned = path.to_owned();
    let Some(failure) = error.sqlite_error() else { return StoreError::Io { path: owned, reason } };
    match failure.code {
        ErrorCode::DiskFull => StoreError::Full { path: owned },
        ErrorCode::ReadOnly => StoreError::ReadOnly { path: owned, reason },
        ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked => StoreError::Busy { path: owned },
        ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase => StoreError::Corrupt { path: owned, reason },
        // SQLite calls many things an I/O error or "cannot open": the file system knows better.
        ErrorCode::SystemIoFailure | ErrorCode::CannotOpen if is_full(path) => StoreError::Full { path: owned },
        ErrorCode::SystemIoFailure if failure.extended_code == ffi::SQLITE_IOERR_WRITE => {
            StoreError::Io { path: owned, reason }
        }
        ErrorCode::CannotOpen | ErrorCode::PermissionDenied => match open_private(path) {
            Err(e) => translate_io(path, &e),
            Ok(_) => StoreError::ReadOnly { path: owned, reason },
        },
        _ => StoreError::Io { path: owned, reason },
    }
}

/// True when the file system has hardly a page or no inode left.
fn is_full(path: &Path) -> bool {
    let Some(folder) = path.parent() else { return false };
    nix::sys::statvfs::statvfs(folder).is_ok_and(|disk| {
        disk.blocks_available() * disk.fragment_size() < 64 * 1024 || (disk.files() > 0 && disk.files_available() == 0)
    })
}
