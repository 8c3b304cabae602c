//! The files of `runner/minimal`, and tar files that depend on nothing but their content.

use tar::{Builder, EntryType, Header};

/// The files beside the programs.
const FILES: [(&str, &str); 3] = [
    ("etc/passwd", include_str!("../../../../../images/minimal/etc/passwd")),
    ("etc/group", include_str!("../../../../../images/minimal/etc/group")),
    ("etc/hosts", include_str!("../../../../../images/minimal/etc/hosts")),
];

/// A tar file in the making. Owner root, date 0, no names of owners: nothing of the machine that makes it.
pub(crate) struct Tree {
    tar: Builder<Vec<u8>>,
}

impl Default for Tree {
    fn default() -> Tree {
        Tree { tar: Builder::new(Vec::new()) }
    }
}

impl Tree {
    pub(super) fn file(&mut self, path: &str, content: &[u8], mode: u32) {
        self.entry(path, EntryType::Regular, mode, None, content);
    }

    fn folder(&mut self, path: &str, mode: u32) {
        self.entry(path, EntryType::Directory, mode, None, &[]);
    }

    fn link(&mut self, path: &str, target: &str) {
        self.entry(path, EntryType::Symlink, 0o777, Some(target), &[]);
    }

    fn entry(&mut self, path: &str, kind: EntryType, mode: u32, target: Option<&str>, content: &[u8]) {
        let mut header = Header::new_ustar();
        header.set_entry_type(kind);
        header.set_mode(mode);
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(0);
        header.set_size(content.len() as u64);
        match target {
            Some(target) => self.tar.append_link(&mut header, path, target),
            None => self.tar.append_data(&mut header, path, content),
        }
        .expect("writing to memory does not fail, and our paths are short");
    }

    pub(super) fn into_tar(self) -> Vec<u8> {
        self.tar.into_inner().expect("writing to memory does not fail")
    }
}

/// Makes the one layer: every program in /bin, and the other usual places as links to it.
pub(crate) fn assemble(bash: &[u8], busybox: &[u8], applets: &[String]) -> Vec<u8> {
    let mut tree = Tree::default();
    for folder in
        ["app/", "bin/", "dev/", "etc/", "proc/", "run/", "sys/", "usr/", "usr/local/", "usr/local/bin/", "var/"]
    {
        tree.folder(folder, 0o755);
    }
    tree.folder("root/", 0o700);
    tree.folder("tmp/", 0o1777);
    tree.file("bin/bash", bash, 0o755);
    tree.file("bin/busybox", busybox, 0o755);
    let mut applets: Vec<&str> = applets.iter().map(String::as_str).collect();
    applets.sort_unstable();
    applets.dedup();
    for applet in applets {
        if !matches!(applet, "bash" | "busybox") {
            tree.link(&format!("bin/{applet}"), "busybox");
        }
    }
    tree.link("sbin", "bin");
    tree.link("usr/bin", "../bin");
    tree.link("usr/sbin", "../bin");
    tree.link("var/tmp", "../tmp");
    for (path, content) in FILES {
        tree.file(path, content.as_bytes(), 0o644);
    }
    tree.into_tar()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn the_layer_has_what_a_sandbox_needs() {
        let applets = ["sh", "ls", "bash", "ls"].map(str::to_owned);
        let layer = assemble(b"B", b"X", &applets);
        let mut tar = tar::Archive::new(layer.as_slice());
        let mut seen = BTreeMap::new();
        for entry in tar.entries().unwrap() {
            let entry = entry.unwrap();
            let header = entry.header();
            assert_eq!((header.uid().unwrap(), header.gid().unwrap(), header.mtime().unwrap()), (0, 0, 0));
            let path = entry.path().unwrap().to_string_lossy().into_owned();
            let what = (header.entry_type(), header.mode().unwrap());
            assert_eq!(seen.insert(path.clone(), what), None, "{path} comes twice");
        }
        assert_eq!(seen["tmp/"], (EntryType::Directory, 0o1777));
        assert_eq!(seen["bin/bash"], (EntryType::Regular, 0o755));
        assert_eq!(seen["bin/sh"].0, EntryType::Symlink);
        for folder in ["proc/", "sys/", "dev/", "app/", "etc/"] {
            assert_eq!(seen[folder].0, EntryType::Directory);
        }
    }
}
