//! The environment of commands: built from nothing, then the image's harmless variables, then ours.
//!
//! Variables that steer a program's loader, shell, interpreter and the like are refused whoever asks for them: they would
//! let data decide what code runs. The table below is the only list of them.

/// Longest value of a variable, in bytes.
const MAX_VALUE: usize = 4096;

/// Longest name of a variable, in bytes.
const MAX_NAME: usize = 64;

/// `PATH` of an image that has none.
const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Ours, the same for every command of every sandbox.
const OURS: [(&str, &str); 6] = [
    ("HOME", "/tmp/home"),
    ("TMPDIR", "/tmp"),
    ("USER", "agent"),
    ("LANG", "C.UTF-8"),
    ("TERM", "dumb"),
    ("TZ", "UTC"),
];

/// Names that are refused for one reason. A pattern is in upper case; `*` stands at its start or its end.
struct Group {
    reason: &'static str,
    patterns: &'static [&'static str],
}

#[rustfmt::skip]
const REFUSED: &[Group] = &[
    Group {
        reason: "the runner sets it itself",
        patterns: &["PATH", "HOME", "TMPDIR", "TMP", "TEMP", "USER", "LOGNAME", "LANG", "TERM", "TZ", "PWD", "OLDPWD",
            "SHLVL", "HOSTNAME", "_", "RUNNER_*"],
    },
    Group {
        reason: "it steers the dynamic loader or the C library",
        patterns: &["LD_*", "DYLD_*", "GLIBC_*", "MALLOC_*", "GCONV_PATH", "LOCPATH", "NLSPATH", "RES_OPTIONS",
            "LOCALDOMAIN", "HOSTALIASES", "RESOLV_*", "GETCONF_DIR", "TZDIR", "NIS_PATH", "LIBPATH", "SHLIB_PATH",
            "ASAN_*", "LSAN_*", "MSAN_*", "TSAN_*", "UBSAN_*", "GMON_OUT_PREFIX", "TERMINFO", "TERMINFO_DIRS", "TERMCAP"],
    },
    Group {
        reason: "it steers a shell",
        patterns: &["BASH*", "ENV", "SHELL", "SHELLOPTS", "IFS", "PS0", "PS1", "PS2", "PS3", "PS4", "PROMPT_COMMAND",
            "CDPATH", "GLOBIGNORE", "EXECIGNORE", "FIGNORE", "INPUTRC", "FPATH", "ZDOTDIR", "ZSH*", "KSH*", "FCEDIT",
            "HISTFILE", "HISTFILESIZE", "HISTSIZE", "HISTCONTROL", "HISTIGNORE", "POSIXLY_CORRECT", "TMOUT", "OPTIND",
            "MAILPATH", "MAILCHECK", "NULLCMD", "READNULLCMD", "PSMODULEPATH", "POWERSHELL_*"],
    },
    Group {
        reason: "it steers an interpreter",
        patterns: &["PYTHON*", "PYENV_*", "VIRTUAL_ENV", "CONDA_*", "PERL*", "RUBY*", "GEM_*", "RBENV_*", "IRBRC", "NODE_*",
            "DENO_*", "BUN_*", "TS_NODE_*", "LUA_*", "LUA_PATH_*", "PHP_*", "PHPRC", "TCLLIBPATH", "TCL_*", "R_*",
            "JULIA_*", "JAVA_*", "_JAVA_*", "JDK_*", "JVM_*", "CLASSPATH", "DOTNET_*", "CORECLR_*", "COMPLUS_*", "ERL_*",
            "ELIXIR_*", "MIX_*", "GHC_*", "GHCRTS", "OCAML*", "CAML_*", "GUILE_*", "AWKPATH", "AWKLIBPATH", "GAWK_*",
            "SCHEME*", "RACKET*", "PLT*", "JQ_*", "MONO_*", "V8_*"],
    },
    Group {
        reason: "it steers a build tool or a package manager",
        patterns: &["MAKEFLAGS", "GNUMAKEFLAGS", "MFLAGS", "MAKEFILES", "MAKE", "CC", "CXX", "CPP", "LD", "AR", "AS", "NM",
            "RANLIB", "STRIP", "CFLAGS", "CPPFLAGS", "CXXFLAGS", "LDFLAGS", "LDLIBS", "LIBS", "CPATH", "C_INCLUDE_PATH",
            "CPLUS_INCLUDE_PATH", "OBJC_INCLUDE_PATH", "LIBRARY_PATH", "COMPILER_PATH", "GCC_*", "COLLECT_*", "CCACHE_*",
            "SCCACHE_*", "DISTCC_*", "CMAKE_*", "CTEST_*", "MESON*", "NINJA*", "PKG_CONFIG*", "ACLOCAL_PATH", "AUTOM4TE",
            "M4PATH", "CONFIG_SITE", "CONFIG_SHELL", "RUST*", "CARGO*", "GO111MODULE", "GOFLAGS", "GOPROXY", "GOROOT",
            "GOPATH", "GOBIN", "GOENV", "GOTOOLCHAIN", "GOTOOLDIR", "GOSUMDB", "GONOSUMDB", "GONOSUMCHECK", "GONOPROXY",
            "GOPRIVATE", "GOINSECURE", "GOEXPERIMENT", "GODEBUG", "GOVCS", "GOWORK", "GOCACHE", "GOMODCACHE", "GOAUTH",
            "CGO_*", "MAVEN_*", "M2_*", "MVN_*", "GRADLE_*", "SBT_*", "ANT_*", "BAZEL*", "NPM_*", "YARN_*", "PNPM_*",
            "COREPACK_*", "NVM_*", "PIP_*", "PIPX_*", "PIPENV_*", "UV_*", "POETRY_*", "PDM_*", "HATCH_*", "TOX_*",
            "SETUPTOOLS_*", "DISTUTILS_*", "PYTEST_*", "BUNDLE_*", "BUNDLER_*", "COMPOSER_*", "CONAN_*", "VCPKG_*",
            "CABAL_*", "STACK_*", "OPAM*", "HEX_*", "REBAR_*", "NIX_*", "HOMEBREW_*", "APT_*", "DEBIAN_FRONTEND", "DPKG_*",
            "DEB_*", "RPM_*"],
    },
    Group {
        reason: "it steers a version control program or a remote shell",
        patterns: &["GIT_*", "GCM_*", "SSH_*", "HG*", "SVN_*", "CVS*", "BZR_*", "RSYNC_*", "GPG_*", "GNUPGHOME"],
    },
    Group {
        reason: "it steers a pager, an editor or another program that is started by name",
        patterns: &["PAGER", "*_PAGER", "MANPAGER", "LESS*", "MORE", "MANOPT", "MANPATH", "MANROFFOPT", "EDITOR", "*_EDITOR",
            "VISUAL", "BROWSER", "VIMINIT", "EXINIT", "VIM", "VIMRUNTIME", "NVIM*", "EMACS*", "SUDO_*", "*_ASKPASS",
            "GREP_*", "TAR_OPTIONS", "TAPE", "GZIP", "BZIP", "BZIP2", "XZ_*", "ZSTD_*", "ZIPOPT", "UNZIP*", "RIPGREP_*",
            "FZF_*", "FD_*", "BAT_*", "GDB*", "LLDB*", "STRACE_*", "DEBUGINFOD_*", "XDG_*", "DBUS_*", "DISPLAY",
            "XAUTHORITY", "WAYLAND_*"],
    },
    Group {
        reason: "it steers a proxy or whom a TLS client trusts",
        patterns: &["*_PROXY", "SSL_*", "SSLKEYLOGFILE", "OPENSSL_*", "GNUTLS_*", "CURL_*", "WGETRC", "SYSTEM_WGETRC",
            "NETRC", "REQUESTS_CA_BUNDLE", "HTTPLIB2_CA_CERTS", "KRB5*"],
    },
    Group {
        reason: "it steers a cloud or container client, or holds its credentials",
        patterns: &["AWS_*", "AZURE_*", "ARM_*", "MSI_*", "GOOGLE_*", "GCLOUD_*", "GCP_*", "GCE_*", "CLOUDSDK_*",
            "FIREBASE_*", "KUBE*", "HELM_*", "DOCKER_*", "BUILDKIT_*", "BUILDX_*", "COMPOSE_*", "CONTAINER_*",
            "CONTAINERS_*", "CONTAINERD_*", "PODMAN_*", "REGISTRY_*", "TF_*", "TERRAFORM_*", "PULUMI_*", "ANSIBLE_*",
            "VAULT_*", "CONSUL_*", "NOMAD_*", "DIGITALOCEAN_*", "HCLOUD_*", "LINODE_*", "OCI_*", "OS_*", "IBMCLOUD_*",
            "ALIBABA_*", "ALICLOUD_*", "HEROKU_*", "FLY_*", "VERCEL_*", "NETLIFY_*", "CLOUDFLARE_*", "CF_*", "GH_*",
            "GITHUB_*", "GITLAB_*", "BITBUCKET_*", "PGPASSFILE", "PGSERVICEFILE", "PGSYSCONFDIR", "MYSQL_HOME",
            "ANTHROPIC_*", "OPENAI_*", "GEMINI_*"],
    },
];

/// Where an image says its own tools are. It brings these tools, so the places give it nothing that it lacks; declared by
/// anyone else they are refused.
const IMAGE_KEEPS: [&str; 15] = [
    "CARGO_HOME",
    "CONDA_PREFIX",
    "DEBIAN_FRONTEND",
    "DOTNET_ROOT",
    "GEM_HOME",
    "GOPATH",
    "GOROOT",
    "GOTOOLCHAIN",
    "GRADLE_HOME",
    "JAVA_HOME",
    "MAVEN_HOME",
    "NODE_VERSION",
    "PYTHON_VERSION",
    "RUSTUP_HOME",
    "VIRTUAL_ENV",
];

/// Says why a variable may not be declared; none when it may. Upper and lower case are the same here.
pub(crate) fn refusal(name: &str) -> Option<&'static str> {
    if !is_wellformed(name) {
        return Some("a name has up to 64 letters, digits and underscores and does not start with a digit");
    }
    let upper = name.to_ascii_uppercase();
    REFUSED.iter().find(|group| group.patterns.iter().any(|pattern| fits(pattern, &upper))).map(|group| group.reason)
}

fn fits(pattern: &str, name: &str) -> bool {
    if let Some(start) = pattern.strip_suffix('*') {
        name.starts_with(start)
    } else if let Some(end) = pattern.strip_prefix('*') {
        name.ends_with(end)
    } else {
        name == pattern
    }
}

fn is_wellformed(name: &str) -> bool {
    let mut bytes = name.bytes();
    bytes.next().is_some_and(|b| b.is_ascii_alphabetic() || b == b'_')
        && bytes.all(|b| b.is_ascii_alphanumeric() || b == b'_')
        && name.len() <= MAX_NAME
}

/// A variable of an image's configuration that commands may see.
fn image_may_set(name: &str, value: &str) -> bool {
    let harmless = name == "PATH" || IMAGE_KEEPS.contains(&name) || refusal(name).is_none();
    harmless && value.len() <= MAX_VALUE && !value.bytes().any(|b| b.is_ascii_control())
}

/// The whole environment of commands, in the order in which they get it.
pub(crate) fn of_commands(image: &[String]) -> Vec<(String, String)> {
    let mut environment: Vec<(String, String)> = vec![("PATH".to_owned(), DEFAULT_PATH.to_owned())];
    for line in image {
        let Some((name, value)) = line.split_once('=') else { continue };
        if !image_may_set(name, value) {
            continue;
        }
        match environment.iter_mut().find(|(known, _)| known == name) {
            Some((_, old)) => value.clone_into(old),
            None => environment.push((name.to_owned(), value.to_owned())),
        }
    }
    environment.extend(OURS.map(|(name, value)| (name.to_owned(), value.to_owned())));
    environment
}

/// Names of the image's variables that the container itself must not have either. Sent to the engine without `=`, they
/// make it drop them.
pub(crate) fn names_to_drop(image: &[String]) -> Vec<String> {
    let mut names: Vec<String> = image
        .iter()
        .map(|line| line.split_once('=').unwrap_or((line, "")))
        .filter(|(name, value)| !image_may_set(name, value))
        .map(|(name, _)| name.to_owned())
        .collect();
    names.sort();
    names.dedup();
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &[&str]) -> Vec<String> {
        text.iter().map(|line| (*line).to_owned()).collect()
    }

    /// security.md 6, bug 50: every name and family of the table is refused with its group's reason, in any case.
    #[test]
    fn every_name_of_the_table_is_refused() {
        for group in REFUSED {
            for pattern in group.patterns {
                let name = pattern.replace('*', if pattern.starts_with('*') { "SOME" } else { "SOME_1" });
                let mixed: String = name
                    .chars()
                    .enumerate()
                    .map(|(n, c)| if n % 2 == 0 { c.to_ascii_lowercase() } else { c })
                    .collect();
                for spelled in [name.clone(), name.to_ascii_lowercase(), mixed] {
                    assert!(refusal(&spelled).is_some(), "{spelled} of {pattern} is allowed");
                }
                assert_eq!(pattern.to_ascii_uppercase(), **pattern, "patterns are in upper case");
            }
        }
    }

    /// bug 50 and the families that security.md 6 names, each with the reason a person reads.
    #[test]
    fn known_tricks_are_refused_with_their_reason() {
        let cases = [
            ("LD_PRELOAD", "loader"),
            ("ld_preload", "loader"),
            ("LD_LIBRARY_PATH", "loader"),
            ("GLIBC_TUNABLES", "loader"),
            ("path", "runner sets it"),
            ("GIT_CONFIG_KEY_0", "version control"),
            ("GIT_SSH_COMMAND", "version control"),
            ("BASH_ENV", "shell"),
            ("BASH_FUNC_x", "shell"),
            ("ENV", "shell"),
            ("IFS", "shell"),
            ("PYTHONPATH", "interpreter"),
            ("PYTHONSTARTUP", "interpreter"),
            ("NODE_OPTIONS", "interpreter"),
            ("PERL5OPT", "interpreter"),
            ("RUBYOPT", "interpreter"),
            ("JAVA_TOOL_OPTIONS", "interpreter"),
            ("_JAVA_OPTIONS", "interpreter"),
            ("npm_config_script_shell", "build tool"),
            ("NPM_CONFIG_PREFIX", "build tool"),
            ("RUSTC_WRAPPER", "build tool"),
            ("CARGO_BUILD_RUSTC", "build tool"),
            ("MAKEFLAGS", "build tool"),
            ("PIP_INDEX_URL", "build tool"),
            ("LESSOPEN", "pager"),
            ("PAGER", "pager"),
            ("VISUAL", "pager"),
            ("https_proxy", "proxy"),
            ("ALL_PROXY", "proxy"),
            ("AWS_SECRET_ACCESS_KEY", "cloud"),
            ("KUBECONFIG", "cloud"),
            ("DOCKER_HOST", "cloud"),
            ("BASH_FUNC_x%%", "letters"),
            ("FOO\nLD_PRELOAD", "letters"),
            ("", "letters"),
            ("1A", "letters"),
            ("A=B", "letters"),
            ("A\0", "letters"),
            ("É", "letters"),
        ];
        for (name, word) in cases {
            let reason = refusal(name).unwrap_or_else(|| panic!("{name} is allowed"));
            assert!(reason.contains(word), "{name}: {reason:?} lacks {word:?}");
        }
        assert!(refusal(&"A".repeat(65)).is_some());
        for harmless in ["MY_SETTING", "EDITION", "LC_ALL", "GOAL", "CCX", "ENVIRONMENT", "PATHWAY", "COLUMNS", "A"] {
            assert_eq!(refusal(harmless), None, "{harmless}");
        }
    }

    /// T-BASH-6: PATH and the image's other harmless variables are kept; HOME, TMPDIR, USER and LANG are ours.
    #[test]
    fn commands_get_the_harmless_and_ours() {
        let image = lines(&[
            "PATH=/opt/bin:/bin",
            "HOME=/root",
            "LANG=xx",
            "LD_PRELOAD=/evil.so",
            "LC_ALL=C.UTF-8",
            "RUSTUP_HOME=/usr/local/rustup",
            "RUSTC_WRAPPER=/evil",
            "A=1",
            "A=2",
            "BROKEN",
            "LINES=a\nb",
        ]);
        let text: Vec<String> =
            of_commands(&image).into_iter().map(|(name, value)| format!("{name}={value}")).collect();
        assert_eq!(
            text,
            [
                "PATH=/opt/bin:/bin",
                "LC_ALL=C.UTF-8",
                "RUSTUP_HOME=/usr/local/rustup",
                "A=2",
                "HOME=/tmp/home",
                "TMPDIR=/tmp",
                "USER=agent",
                "LANG=C.UTF-8",
                "TERM=dumb",
                "TZ=UTC",
            ]
        );
        assert_eq!(of_commands(&[])[0], ("PATH".to_owned(), DEFAULT_PATH.to_owned()));
        assert_eq!(names_to_drop(&image), ["HOME", "LANG", "LD_PRELOAD", "LINES", "RUSTC_WRAPPER"]);
    }

    /// Names are a set to the kernel, not to a hostile image: nothing reaches a command twice.
    #[test]
    fn no_name_comes_twice() {
        let image = lines(&["PATH=/a", "PATH=/b", "B=1", "B=2", "B=3", "TZ=x", "USER=root"]);
        let environment = of_commands(&image);
        let mut names: Vec<_> = environment.iter().map(|(name, _)| name).collect();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), environment.len());
    }
}
