//! Paths of /proc and /sys that a sandbox does not see, or sees and cannot write.

use std::fs;

/// What engines mask by themselves, old and new ones; asking for a list of ours replaces theirs.
const ENGINES: [&str; 12] = [
    "/proc/acpi",
    "/proc/asound",
    "/proc/interrupts",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/sched_debug",
    "/proc/scsi",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/sys/devices/virtual/powercap",
    "/sys/firmware",
];

/// What tells of the host or of other containers and no command needs. Neither globs nor braces: the engine takes names.
const OURS: [&str; 45] = [
    "/proc/buddyinfo",
    "/proc/bus",
    "/proc/cmdline",
    "/proc/config.gz",
    "/proc/crypto",
    "/proc/diskstats",
    "/proc/driver",
    "/proc/dynamic_debug",
    "/proc/fs",
    "/proc/iomem",
    "/proc/ioports",
    "/proc/irq",
    "/proc/kallsyms",
    "/proc/key-users",
    "/proc/kmsg",
    "/proc/kpagecgroup",
    "/proc/kpagecount",
    "/proc/kpageflags",
    "/proc/locks",
    "/proc/misc",
    "/proc/modules",
    "/proc/mtrr",
    "/proc/pagetypeinfo",
    "/proc/partitions",
    "/proc/pressure",
    "/proc/schedstat",
    "/proc/slabinfo",
    "/proc/softirqs",
    "/proc/swaps",
    "/proc/sysvipc",
    "/proc/tty",
    "/proc/vmallocinfo",
    "/proc/vmstat",
    "/proc/zoneinfo",
    "/sys/block",
    "/sys/bus",
    "/sys/class",
    "/sys/dev",
    "/sys/devices/virtual",
    "/sys/fs/bpf",
    "/sys/fs/cgroup",
    "/sys/hypervisor",
    "/sys/kernel",
    "/sys/module",
    "/sys/power",
];

/// What can be read and not written.
pub(super) const READ_ONLY: [&str; 5] = ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"];

/// Everything masked, each once and in order: the engine's lists, ours, and each processor's throttle counters.
pub(super) fn masked() -> Vec<String> {
    let mut paths: Vec<String> = ENGINES.iter().chain(&OURS).map(|path| (*path).to_owned()).collect();
    let processors = fs::read_dir("/sys/devices/system/cpu").into_iter().flatten().flatten();
    paths.extend(
        processors
            .map(|cpu| cpu.path().join("thermal_throttle"))
            .filter(|path| path.exists())
            .filter_map(|path| path.into_os_string().into_string().ok()),
    );
    paths.sort();
    paths.dedup();
    paths
}

#[cfg(test)]
mod tests {
    use super::*;

    /// security.md 1: the engine's list and ours, written out.
    #[test]
    fn masked_paths_are_the_union_without_globs() {
        let masked = masked();
        for path in ENGINES.iter().chain(&OURS) {
            assert!(masked.iter().any(|masked| masked == path), "{path}");
        }
        assert!(masked.iter().all(|path| path.starts_with('/') && !path.contains(['*', '{', '?'])));
        assert!(masked.windows(2).all(|pair| pair[0] < pair[1]));
    }
}
