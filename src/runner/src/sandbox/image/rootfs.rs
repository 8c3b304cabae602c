//! A root file system on this machine's disk as an image's layer, written as it is read.
//!
//! An archive names its layer by digest and size before the layer itself, so the tree is read twice and is never in
//! memory. Owners are root, no program is setuid, and nothing but folders, files and links gets in.

use std::collections::HashMap;
use std::fs::{self, File, Metadata};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use futures_util::Stream;
use futures_util::stream::unfold;
use serde::Serialize;
use sha2::{Digest, Sha256};
use tar::{Builder, EntryType, Header};
use tokio::sync::mpsc;

use super::archive::Parts;

/// Bytes that go to the engine at a time; a few such pieces are all of the image that is in memory.
const PIECE: usize = 1 << 20;

/// Folders that stay empty: the engine and the runtime mount over them.
const EMPTY: [&str; 4] = ["dev", "proc", "sys", "run"];

/// A root file system that nobody changes any more.
#[derive(Debug, Clone)]
pub(super) struct Rootfs {
    root: PathBuf,
    /// What is younger was made by the installation, and its time is not kept: it would differ from build to build. What
    /// packages brought keeps its time, which Python's compiled modules record.
    begun: u64,
}

/// How far the archive has got.
#[derive(Debug, Clone, Copy)]
pub(super) struct Size {
    /// Bytes of the layer.
    pub(super) bytes: u64,
}

impl Rootfs {
    pub(super) fn new(root: PathBuf, begun: SystemTime) -> Rootfs {
        Rootfs { root, begun: begun.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()) }
    }

    /// Measures the layer, then streams the docker archive of an image with that layer. Both read the whole tree, so
    /// they have threads of their own.
    pub(super) async fn archive(
        self,
        tag: &str,
        defaults: &impl Serialize,
    ) -> io::Result<(Size, impl Stream<Item = io::Result<Bytes>> + Send + 'static)> {
        let tree = self.clone();
        let measured = tokio::task::spawn_blocking(move || {
            let mut measure = Measure { hash: Sha256::new(), bytes: 0 };
            tree.write(&mut measure).map(|()| measure)
        });
        let Measure { hash, bytes } = measured.await??;
        let parts = Parts::of(tag, defaults, &hex::encode(hash.finalize()));
        let (sender, receiver) = mpsc::channel(2);
        tokio::task::spawn_blocking(move || {
            let mut out = BufWriter::with_capacity(PIECE, Pipe(sender.clone()));
            if let Err(error) = self.write_archive(&parts, bytes, &mut out).and_then(|()| out.flush()) {
                // Whoever has gone away does not need it.
                let _ = sender.blocking_send(Err(error));
            }
        });
        let pieces = unfold(receiver, |mut receiver| async { Some((receiver.recv().await?, receiver)) });
        Ok((Size { bytes }, pieces))
    }

    fn write_archive(&self, parts: &Parts, bytes: u64, out: &mut impl Write) -> io::Result<()> {
        let mut tar = Builder::new(&mut *out);
        let header = |size| {
            let mut header = plain(EntryType::Regular, 0o644, 0);
            header.set_size(size);
            header
        };
        tar.append_data(&mut header(parts.config.1.len() as u64), &parts.config.0, parts.config.1.as_slice())?;
        tar.append_data(&mut header(parts.manifest.len() as u64), "manifest.json", parts.manifest.as_slice())?;
        // The layer is written as its entry's content: a header, the bytes, and zeros up to the next block.
        let mut header = header(bytes);
        header.set_path(&parts.layer)?;
        header.set_cksum();
        tar.get_mut().write_all(header.as_bytes())?;
        let mut counted = Counted { out: &mut *tar.get_mut(), bytes: 0 };
        self.write(&mut counted)?;
        if counted.bytes != bytes {
            let why = format!("{} changed while it was packed", self.root.display());
            return Err(io::Error::other(why));
        }
        let rest = usize::try_from(bytes.next_multiple_of(512) - bytes).unwrap_or_default();
        tar.get_mut().write_all(&[0; 512][..rest])?;
        tar.finish()
    }

    /// Writes the layer.
    pub(super) fn write(&self, out: &mut impl Write) -> io::Result<()> {
        let mut tar = Builder::new(out);
        let mut linked = HashMap::new();
        let mut open = vec![PathBuf::new()];
        while let Some(folder) = open.pop() {
            let mut names = Vec::new();
            for entry in fs::read_dir(self.root.join(&folder)).map_err(|error| at(&folder, &error))? {
                names.push(entry?.file_name());
            }
            names.sort_unstable();
            for name in names {
                let path = folder.join(name);
                let met = self.entry(&mut tar, &path, &mut linked).map_err(|error| at(&path, &error))?;
                if met.is_dir() && !EMPTY.iter().any(|empty| path == Path::new(empty)) {
                    open.push(path);
                }
            }
        }
        tar.finish()
    }

    fn entry(
        &self,
        tar: &mut Builder<&mut impl Write>,
        path: &Path,
        linked: &mut HashMap<(u64, u64), PathBuf>,
    ) -> io::Result<Metadata> {
        let source = self.root.join(path);
        let found = fs::symlink_metadata(&source)?;
        let kind = found.file_type();
        let time = u64::try_from(found.mtime()).ok().filter(|time| *time < self.begun).unwrap_or(0);
        if kind.is_dir() {
            let mut header = plain(EntryType::Directory, found.mode() & 0o1777, time);
            tar.append_data(&mut header, path, io::empty())?;
        } else if kind.is_symlink() {
            let mut header = plain(EntryType::Symlink, 0o777, time);
            tar.append_link(&mut header, path, fs::read_link(&source)?)?;
        } else if kind.is_file() {
            if found.nlink() > 1 {
                if let Some(first) = linked.get(&(found.dev(), found.ino())) {
                    let mut header = plain(EntryType::Link, found.mode() & 0o777, time);
                    tar.append_link(&mut header, path, first)?;
                    return Ok(found);
                }
                linked.insert((found.dev(), found.ino()), path.to_owned());
            }
            let mut header = plain(EntryType::Regular, found.mode() & 0o777, time);
            header.set_size(found.len());
            tar.append_data(&mut header, path, File::open(&source)?)?;
        } else {
            debug_assert!(kind.is_block_device() || kind.is_char_device() || kind.is_fifo() || kind.is_socket());
        }
        Ok(found)
    }
}

/// A header with owner root and no names of owners.
fn plain(kind: EntryType, mode: u32, time: u64) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(time);
    header.set_size(0);
    header
}

fn at(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("/{}: {error}", path.display()))
}

/// Takes digest and length of what is written to it.
struct Measure {
    hash: Sha256,
    bytes: u64,
}

impl Write for Measure {
    fn write(&mut self, piece: &[u8]) -> io::Result<usize> {
        self.hash.update(piece);
        self.bytes += piece.len() as u64;
        Ok(piece.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Counts what goes through.
struct Counted<W> {
    out: W,
    bytes: u64,
}

impl<W: Write> Write for Counted<W> {
    fn write(&mut self, piece: &[u8]) -> io::Result<usize> {
        let written = self.out.write(piece)?;
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// Hands pieces to the request's body and waits while it has enough.
struct Pipe(mpsc::Sender<io::Result<Bytes>>);

impl Write for Pipe {
    fn write(&mut self, piece: &[u8]) -> io::Result<usize> {
        let sent = self.0.blocking_send(Ok(Bytes::copy_from_slice(piece)));
        sent.map(|()| piece.len()).map_err(|_| io::Error::from(io::ErrorKind::BrokenPipe))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::time::Duration;

    use futures_util::StreamExt;
    use serde_json::{Value, json};

    use super::*;

    fn tree() -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        let path = |name: &str| root.path().join(name);
        for folder in ["bin", "tmp", "run/lock", "dev", "deep"] {
            fs::create_dir_all(path(folder)).unwrap();
        }
        fs::write(path("bin/su"), "S").unwrap();
        fs::hard_link(path("bin/su"), path("bin/sv")).unwrap();
        symlink("bin/su", path("link")).unwrap();
        nix::unistd::mkfifo(&path("bin/pipe"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        fs::write(path("deep").join("n".repeat(150)), "long").unwrap();
        fs::write(path("old"), "old").unwrap();
        // Whatever the umask is.
        let long = format!("deep/{}", "n".repeat(150));
        let modes = [("bin", 0o755), ("deep", 0o755), ("dev", 0o755), ("run", 0o755), ("tmp", 0o1777)];
        for (name, mode) in modes.into_iter().chain([("bin/su", 0o4755), (&long, 0o644), ("old", 0o644)]) {
            fs::set_permissions(path(name), fs::Permissions::from_mode(mode)).unwrap();
        }
        File::open(path("old")).unwrap().set_modified(UNIX_EPOCH + Duration::from_secs(1000)).unwrap();
        root
    }

    #[tokio::test]
    async fn the_archive_holds_the_tree_and_nothing_of_the_machine() {
        let root = tree();
        let begun = SystemTime::now() - Duration::from_mins(1);
        let rootfs = Rootfs::new(root.path().to_owned(), begun);
        let (size, pieces) = rootfs.archive("some/tag:1", &json!({"Cmd": ["/bin/sh"]})).await.unwrap();
        let pieces: Vec<_> = pieces.map(|piece| piece.unwrap()).collect().await;
        let archive = pieces.concat();

        let mut files = HashMap::new();
        for entry in tar::Archive::new(archive.as_slice()).entries().unwrap() {
            let mut entry = entry.unwrap();
            let mut content = Vec::new();
            io::copy(&mut entry, &mut content).unwrap();
            files.insert(entry.path().unwrap().display().to_string(), content);
        }
        let manifest: Value = serde_json::from_slice(&files["manifest.json"]).unwrap();
        assert_eq!(manifest[0]["RepoTags"], json!(["some/tag:1"]));
        let layer = &files[manifest[0]["Layers"][0].as_str().unwrap()];
        let config: Value = serde_json::from_slice(&files[manifest[0]["Config"].as_str().unwrap()]).unwrap();
        assert_eq!(config["rootfs"]["diff_ids"], json!([format!("sha256:{}", hex::encode(Sha256::digest(layer)))]));
        assert_eq!((size.bytes, &config["created"]), (layer.len() as u64, &json!("1970-01-01T00:00:00Z")));

        let mut seen = Vec::new();
        for entry in tar::Archive::new(layer.as_slice()).entries().unwrap() {
            let entry = entry.unwrap();
            let header = entry.header();
            assert_eq!((header.uid().unwrap(), header.gid().unwrap()), (0, 0));
            let name = entry.path().unwrap().display().to_string().replace(&"n".repeat(150), "LONG");
            let link = entry.link_name().unwrap().map(|link| format!(" -> {}", link.display())).unwrap_or_default();
            seen.push(format!("{:o} {} {name}{link}", header.mode().unwrap(), header.mtime().unwrap()));
        }
        insta::assert_snapshot!(seen.join("\n"), @r"
        755 0 bin
        755 0 deep
        755 0 dev
        777 0 link -> bin/su
        644 1000 old
        755 0 run
        1777 0 tmp
        644 0 deep/LONG
        755 0 bin/su
        755 0 bin/sv -> bin/su
        ");
    }

    #[tokio::test]
    async fn two_readings_of_one_tree_are_one_archive() {
        let root = tree();
        let archive = || async {
            let rootfs = Rootfs::new(root.path().to_owned(), SystemTime::now());
            let (_, pieces) = rootfs.archive("some/tag:1", &json!({})).await.unwrap();
            pieces.map(|piece| piece.unwrap()).collect::<Vec<_>>().await.concat()
        };
        assert!(archive().await == archive().await);
    }
}
