//! Counters of a container's cgroup on the host: how often the kernel killed something in it for memory, and how often a
//! fork failed at the pids limit. Their growth during a call is the cause of its failure.
//!
//! Inspect's `OOMKilled` will not do: it says that something in the container was once killed, not when or what.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

/// Where a container's counters are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Cgroup {
    memory: PathBuf,
    pids: PathBuf,
}

/// Counts since the container started.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Counters {
    /// Processes that the kernel killed at the memory limit.
    pub(crate) oom_kills: u64,
    /// Forks that failed at the pids limit.
    pub(crate) pids_refused: u64,
}

impl Counters {
    /// What was added since an earlier reading.
    pub(crate) fn since(self, earlier: Counters) -> Counters {
        Counters {
            oom_kills: self.oom_kills.saturating_sub(earlier.oom_kills),
            pids_refused: self.pids_refused.saturating_sub(earlier.pids_refused),
        }
    }
}

impl Cgroup {
    /// Finds the counters of a process: a container's PID 1 as the host numbers it.
    pub(crate) fn of(pid: u32) -> io::Result<Cgroup> {
        let groups = fs::read_to_string(format!("/proc/{pid}/cgroup"))?;
        let mounts = fs::read_to_string("/proc/self/mountinfo")?;
        Cgroup::find(&groups, &mounts).ok_or_else(|| {
            io::Error::new(
                io::ErrorKind::NotFound,
                format!("process {pid} has no memory and pids cgroups on this host"),
            )
        })
    }

    fn find(groups: &str, mounts: &str) -> Option<Cgroup> {
        let file = |controller: &str, v1: &str, v2: &str| {
            let of_v1 = path_of(groups, controller).zip(mount_of(mounts, "cgroup", Some(controller)));
            if let Some((group, mount)) = of_v1 {
                return Some(below(&mount, group)?.join(v1));
            }
            let (group, mount) = path_of(groups, "").zip(mount_of(mounts, "cgroup2", None))?;
            Some(below(&mount, group)?.join(v2))
        };
        Some(Cgroup {
            memory: file("memory", "memory.oom_control", "memory.events")?,
            pids: file("pids", "pids.events", "pids.events")?,
        })
    }

    /// Reads the counters. The cgroup is gone when the container is, which is an error.
    pub(crate) fn read(&self) -> io::Result<Counters> {
        Ok(Counters {
            oom_kills: counter(&fs::read_to_string(&self.memory)?, "oom_kill"),
            pids_refused: counter(&fs::read_to_string(&self.pids)?, "max"),
        })
    }
}

/// The process's path in the hierarchy of a controller, or in the unified one (`0::`), from /proc/N/cgroup.
fn path_of<'a>(groups: &'a str, controller: &str) -> Option<&'a str> {
    groups.lines().find_map(|line| {
        let mut parts = line.splitn(3, ':');
        let (_, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
        controllers.split(',').any(|name| name == controller).then_some(path)
    })
}

/// Root and mount point of a hierarchy, from mountinfo (proc(5)).
fn mount_of(mounts: &str, kind: &str, controller: Option<&str>) -> Option<(String, PathBuf)> {
    mounts.lines().find_map(|line| {
        let (left, right) = line.split_once(" - ")?;
        let left: Vec<&str> = left.split(' ').collect();
        let right: Vec<&str> = right.split(' ').collect();
        let fits = right.first() == Some(&kind)
            && controller.is_none_or(|name| right.get(2).is_some_and(|options| options.split(',').any(|o| o == name)));
        fits.then(|| Some(((*left.get(3)?).to_owned(), PathBuf::from(left.get(4)?))))?
    })
}

/// The folder of a group under a mount that may show only a part of the hierarchy.
fn below((root, point): &(String, PathBuf), group: &str) -> Option<PathBuf> {
    let inside = Path::new(group).strip_prefix(root).ok()?;
    // `/..` is how a cgroup outside our own namespace is shown; we cannot see it.
    (!inside.starts_with("..")).then(|| point.join(inside))
}

/// The number beside a name in lines of `name number`.
fn counter(text: &str, name: &str) -> u64 {
    text.lines()
        .filter_map(|line| line.split_once(' '))
        .find(|(key, _)| *key == name)
        .and_then(|(_, number)| number.trim().parse().ok())
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const V1_MOUNTS: &str = "\
30 23 0:26 / /sys/fs/cgroup ro,nosuid - tmpfs tmpfs ro,mode=755
31 30 0:27 / /sys/fs/cgroup/unified rw,nosuid - cgroup2 cgroup2 rw
35 30 0:31 / /sys/fs/cgroup/memory rw,nosuid - cgroup cgroup rw,memory
36 30 0:32 / /sys/fs/cgroup/pids rw,nosuid shared:9 - cgroup cgroup rw,pids";

    #[test]
    fn hybrid_v1() {
        let groups = "9:pids:/docker/abc\n5:cpu,memory:/docker/abc\n0::/docker/abc\n";
        assert_eq!(
            Cgroup::find(groups, V1_MOUNTS).unwrap(),
            Cgroup {
                memory: "/sys/fs/cgroup/memory/docker/abc/memory.oom_control".into(),
                pids: "/sys/fs/cgroup/pids/docker/abc/pids.events".into(),
            }
        );
    }

    #[test]
    fn v2() {
        let mounts = "31 23 0:27 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate";
        assert_eq!(
            Cgroup::find("0::/system.slice/docker-abc.scope\n", mounts).unwrap(),
            Cgroup {
                memory: "/sys/fs/cgroup/system.slice/docker-abc.scope/memory.events".into(),
                pids: "/sys/fs/cgroup/system.slice/docker-abc.scope/pids.events".into(),
            }
        );
        assert_eq!(Cgroup::find("0::/../other\n", mounts), None);
        assert_eq!(Cgroup::find("", mounts), None);
    }

    #[test]
    fn a_mount_of_a_part() {
        let mounts = "31 23 0:27 /docker /mnt/cg rw - cgroup2 cgroup2 rw";
        assert_eq!(Cgroup::find("0::/docker/abc\n", mounts).unwrap().pids, Path::new("/mnt/cg/abc/pids.events"));
    }

    #[test]
    fn counters_are_read_by_their_name() {
        assert_eq!(counter("oom_kill_disable 0\nunder_oom 1\noom_kill 3\n", "oom_kill"), 3);
        assert_eq!(counter("low 0\nhigh 9\nmax 2\noom 5\noom_kill 4\n", "oom_kill"), 4);
        assert_eq!(counter("max 7\n", "max"), 7);
        assert_eq!(counter("", "max"), 0);
        let later = Counters { oom_kills: 3, pids_refused: 1 };
        assert_eq!(later.since(Counters { oom_kills: 1, pids_refused: 1 }), Counters { oom_kills: 2, pids_refused: 0 });
    }
}
