//! Checks what PID 1 says of its own confinement: some of it no inspect can see.

use protocol::Facts;

/// `CAP_KILL`, `CAP_SETGID` and `CAP_SETUID` (linux/capability.h: 5, 6 and 7).
const CAPABILITIES: u64 = 1 << 5 | 1 << 6 | 1 << 7;

/// `SECCOMP_MODE_FILTER` (linux/seccomp.h).
const SECCOMP_FILTER: u32 = 2;

/// Refuses a sandbox whose PID 1 is not confined as ordered; `gid` is the group that opens the socket. The error names
/// the first fact that is wrong.
pub(super) fn check(facts: &Facts, gid: u32) -> Result<(), String> {
    let groups = if gid == 0 { vec![0] } else { vec![0, gid] };
    let [inheritable, permitted, effective, bounding, ambient] = facts.capabilities;
    let wrong = |what: &str, seen: &dyn std::fmt::Display, wanted: &dyn std::fmt::Display| {
        Err(format!("its PID 1 is not confined as ordered: {what} is {seen}, must be {wanted}"))
    };
    if facts.pid != 1 {
        return wrong("process id", &facts.pid, &1);
    }
    let mut seen = facts.groups.clone();
    seen.sort_unstable();
    seen.dedup();
    if seen != groups {
        return wrong("groups", &format!("{:?}", facts.groups), &format!("{groups:?}"));
    }
    for (name, set) in [("permitted", permitted), ("effective", effective), ("bounding", bounding)] {
        if set != CAPABILITIES {
            return wrong(&format!("{name} capability set"), &format!("{set:#x}"), &format!("{CAPABILITIES:#x}"));
        }
    }
    // Engines before 20.10.14 also set the inheritable set; nothing is gained from it without file capabilities.
    if inheritable & !CAPABILITIES != 0 {
        return wrong("inheritable capability set", &format!("{inheritable:#x}"), &"empty");
    }
    if ambient != 0 {
        return wrong("ambient capability set", &format!("{ambient:#x}"), &"empty");
    }
    for (what, holds) in [
        ("no_new_privs", facts.no_new_privs),
        ("non-dumpable", facts.undumpable),
        ("read-only root", facts.root_read_only),
        ("tmpfs on /tmp", facts.tmp_is_tmpfs),
    ] {
        if !holds {
            return wrong(what, &"off", &"on");
        }
    }
    if facts.seccomp != SECCOMP_FILTER {
        return wrong("seccomp mode", &facts.seccomp, &SECCOMP_FILTER);
    }
    if !facts.links.is_empty() {
        let links: Vec<_> = facts.links.iter().take(8).map(|link| link.escape_debug().to_string()).collect();
        return Err(format!("its image has links where folders must be: {}; use another image", links.join(", ")));
    }
    if facts.shell.is_none() {
        return Err("its image has no shell (/bin/bash or /bin/sh); use an image that has one".to_owned());
    }
    Ok(())
}

#[cfg(test)]
pub(super) fn good(gid: u32) -> Facts {
    Facts {
        pid: 1,
        groups: if gid == 0 { vec![0] } else { vec![0, gid] },
        capabilities: [0, CAPABILITIES, CAPABILITIES, CAPABILITIES, 0],
        no_new_privs: true,
        seccomp: SECCOMP_FILTER,
        undumpable: true,
        root_read_only: true,
        tmp_is_tmpfs: true,
        shell: Some("/bin/bash".to_owned()),
        links: Vec::new(),
        landlock: 6,
        kernel: "6.18.0".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn right_facts_pass() {
        assert_eq!(check(&good(0), 0), Ok(()));
        assert_eq!(check(&good(998), 998), Ok(()));
        let old_engine = Facts { capabilities: [CAPABILITIES, CAPABILITIES, CAPABILITIES, CAPABILITIES, 0], ..good(0) };
        assert_eq!(check(&old_engine, 0), Ok(()));
    }

    #[test]
    fn each_wrong_fact_is_named() {
        type Change = fn(&mut Facts);
        let changes: [(&str, Change); 16] = [
            ("process id", |f| f.pid = 7),
            ("groups", |f| f.groups = vec![0]),
            ("groups", |f| f.groups = vec![0, 998, 999]),
            ("inheritable", |f| f.capabilities[0] = 1 << 21),
            ("permitted", |f| f.capabilities[1] |= 1),
            ("effective", |f| f.capabilities[2] = 0),
            ("bounding", |f| f.capabilities[3] |= 1 << 21),
            ("ambient", |f| f.capabilities[4] = 1 << 5),
            ("no_new_privs", |f| f.no_new_privs = false),
            ("non-dumpable", |f| f.undumpable = false),
            ("read-only root", |f| f.root_read_only = false),
            ("tmpfs on /tmp", |f| f.tmp_is_tmpfs = false),
            ("seccomp mode", |f| f.seccomp = 0),
            ("seccomp mode", |f| f.seccomp = 1),
            ("links", |f| f.links = vec!["/tmp".to_owned()]),
            ("shell", |f| f.shell = None),
        ];
        for (name, change) in changes {
            let mut facts = good(998);
            change(&mut facts);
            let error = check(&facts, 998).unwrap_err();
            assert!(error.contains(name), "{name}: {error}");
        }
    }
}
