//! The engine: is it there, is it this host's, and can it confine what it runs?

use super::{Finding, Usable};
use crate::sandbox::engine::{Engine, EngineError, Survey};

/// The checks that need its answer, in their order.
const OTHERS: [&str; 6] = ["engine-api", "cgroups", "seccomp", "user-namespaces", "storage-driver", "live-restore"];

/// Looks at the engine; gives it when it can be used.
pub(super) async fn examine() -> (Vec<Finding>, Option<Usable>) {
    match Engine::survey(None).await {
        Ok((survey, judged)) => {
            let (findings, engine) = judge(&survey, judged);
            (findings, engine.map(|engine| Usable { engine, root: survey.root }))
        }
        Err(error) => {
            let skipped = OTHERS.map(|check| Finding::skipped(check, super::NO_ENGINE));
            ([Finding::from_error("engine", &error)].into_iter().chain(skipped).collect(), None)
        }
    }
}

fn judge(survey: &Survey, judged: Result<Engine, EngineError>) -> (Vec<Finding>, Option<Engine>) {
    let others = vec![
        api(survey),
        cgroups(survey),
        seccomp(survey),
        user_namespaces(survey),
        storage_driver(survey),
        live_restore(survey),
    ];
    let (first, engine) = match judged {
        Ok(engine) => (Finding::fine("engine", said(survey)), Some(engine)),
        Err(error) => (Finding::from_error("engine", &error), None),
    };
    ([first].into_iter().chain(others).collect(), engine)
}

fn said(survey: &Survey) -> String {
    format!("Docker Engine {} at {} ({})", survey.server_version, survey.socket.display(), survey.system)
}

fn api(survey: &Survey) -> Finding {
    let (seen, oldest) = (format!("API {}", survey.api_version), Survey::oldest_api());
    if survey.api_is_enough {
        return Finding::fine("engine-api", seen);
    }
    Finding::error("engine-api", format!("{seen}, older than {oldest}"), "install Docker Engine 20.10 or newer")
}

fn cgroups(survey: &Survey) -> Finding {
    let version =
        survey.cgroup_version.map_or_else(|| "unknown version".to_owned(), |version| format!("version {version}"));
    let seen = format!("{version}, driver {}, limits {}", survey.cgroup_driver, survey.controllers.join(", "));
    if !survey.missing_controllers.is_empty() {
        let missing = survey.missing_controllers.join(", ");
        let remedy =
            format!("enable the cgroup controllers {missing} on the kernel's command line or for the engine's unit");
        return Finding::error("cgroups", format!("{seen}, and not {missing}"), remedy);
    }
    if !survey.swap_limit && survey.cgroup_version != Some(2) {
        let remedy = "add swapaccount=1 to the kernel's command line, or turn swap off";
        return Finding::warning("cgroups", format!("{seen}; swap is not limited"), remedy);
    }
    Finding::fine("cgroups", seen)
}

fn seccomp(survey: &Survey) -> Finding {
    if survey.has("seccomp") {
        return Finding::fine(
            "seccomp",
            format!("the engine has it (security options: {})", survey.security.join(", ")),
        );
    }
    Finding::error(
        "seccomp",
        "the engine does not have it",
        "use a kernel with CONFIG_SECCOMP_FILTER and an engine built with it",
    )
}

fn user_namespaces(survey: &Survey) -> Finding {
    const CHECK: &str = "user-namespaces";
    if survey.has("rootless") {
        return Finding::error(
            CHECK,
            "the engine is rootless, which is not supported yet",
            "use a rootful Docker Engine",
        );
    }
    if survey.has("userns") {
        let remedy = "remove \"userns-remap\" from /etc/docker/daemon.json and restart the engine";
        return Finding::error(CHECK, "the engine remaps user ids, which is not supported yet", remedy);
    }
    Finding::fine(CHECK, "the engine remaps no ids")
}

fn storage_driver(survey: &Survey) -> Finding {
    const CHECK: &str = "storage-driver";
    let driver = &survey.storage_driver;
    let remedy = "set \"storage-driver\": \"overlay2\" in /etc/docker/daemon.json; images have to be made again then";
    match driver.as_str() {
        "overlay2" | "overlayfs" | "btrfs" | "zfs" | "fuse-overlayfs" | "stargz" => Finding::fine(CHECK, driver),
        "vfs" => Finding::warning(CHECK, "vfs: every container is a copy of its whole image", remedy),
        "aufs" | "devicemapper" | "overlay" => {
            Finding::warning(CHECK, format!("{driver}, which is no longer maintained"), remedy)
        }
        _ => Finding::warning(CHECK, format!("{driver:?}, which nobody has tried with runner"), remedy),
    }
}

fn live_restore(survey: &Survey) -> Finding {
    if survey.live_restore {
        return Finding::fine("live-restore", "on: sandboxes outlive a restart of the engine");
    }
    let remedy = "if that matters, set \"live-restore\": true in /etc/docker/daemon.json and reload the engine";
    Finding::warning("live-restore", "off: a restart of the engine ends running sandboxes", remedy)
}

#[cfg(test)]
mod tests {
    use super::super::Level;
    use super::*;

    fn good() -> Survey {
        Survey {
            socket: "/run/docker.sock".into(),
            server_version: "28.0".into(),
            system: "Debian".into(),
            api_version: "1.48".into(),
            api_is_enough: true,
            cgroup_version: Some(2),
            cgroup_driver: "systemd".into(),
            controllers: vec!["memory", "pids", "cpu"],
            missing_controllers: Vec::new(),
            swap_limit: true,
            security: vec!["seccomp".into(), "cgroupns".into()],
            storage_driver: "overlay2".into(),
            live_restore: true,
            root: "/var/lib/docker".into(),
        }
    }

    /// Every difference that matters is one finding with a remedy.
    #[test]
    fn each_difference_is_named() {
        type Change = fn(&mut Survey);
        let changes: [(&str, Level, Change); 10] = [
            ("engine-api", Level::Error, |s| s.api_is_enough = false),
            ("cgroups", Level::Error, |s| s.missing_controllers = vec!["pids"]),
            ("cgroups", Level::Warning, |s| (s.swap_limit, s.cgroup_version) = (false, Some(1))),
            ("seccomp", Level::Error, |s| s.security.clear()),
            ("user-namespaces", Level::Error, |s| s.security.push("userns".into())),
            ("user-namespaces", Level::Error, |s| s.security.push("rootless".into())),
            ("storage-driver", Level::Warning, |s| s.storage_driver = "vfs".into()),
            ("storage-driver", Level::Warning, |s| s.storage_driver = "aufs".into()),
            ("storage-driver", Level::Warning, |s| s.storage_driver = "\u{1b}[2J".into()),
            ("live-restore", Level::Warning, |s| s.live_restore = false),
        ];
        let judged = |survey: &Survey| {
            let refused = EngineError::Refused { socket: "/s".into(), reason: "it is odd; use another".into() };
            judge(survey, Err(refused)).0
        };
        assert!(judged(&good())[1..].iter().all(|finding| finding.level == Level::Fine));
        for (check, level, change) in changes {
            let mut survey = good();
            change(&mut survey);
            let wrong: Vec<Finding> =
                judged(&survey).into_iter().skip(1).filter(|finding| finding.level != Level::Fine).collect();
            assert_eq!(wrong.len(), 1, "{wrong:?}");
            assert_eq!((wrong[0].check, wrong[0].level, wrong[0].remedy.is_some()), (check, level, true), "{wrong:?}");
        }
        let first = judged(&good()).remove(0);
        assert_eq!(
            (first.seen.as_str(), first.remedy.as_deref()),
            ("the engine at /s is refused: it is odd", Some("use another"))
        );
    }
}
