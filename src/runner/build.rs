//! Builds the toolbox, the static program inside the container, and hands it to the runner as bytes, so that the runner
//! is one file.
//!
//! The nested cargo has a target folder of its own, `toolbox` in the workspace's: in the same one it would wait for the
//! lock that the outer cargo holds while it waits for us. It is always optimised, whatever profile the runner has, so it
//! is built once for all profiles, and again only when it, the protocol or a dependency changes.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use sha2::{Digest, Sha256};

/// What runs in the container, whatever the host compiles for. The static C library makes it independent of the image.
const TRIPLE: &str = "x86_64-unknown-linux-gnu";

/// Cargo settings of the environment that say how to reach crates, and nothing about what is built.
const KEPT: [&str; 6] =
    ["CARGO_HOME", "CARGO_NET_", "CARGO_HTTP_", "CARGO_REGISTRY_", "CARGO_REGISTRIES_", "CARGO_SOURCE_"];

/// Other settings that the outer cargo, `cargo clippy`, a coverage tool or make leave behind for us, and that would
/// change or stall the nested build.
const DROPPED: [&str; 9] = [
    "RUSTFLAGS",
    "RUSTDOCFLAGS",
    "RUSTC_WRAPPER",
    "RUSTC_WORKSPACE_WRAPPER",
    "CLIPPY_ARGS",
    "MAKEFLAGS",
    "MFLAGS",
    "TARGET",
    "LLVM_PROFILE_FILE",
];

fn main() {
    let target = format!("{}-{}", var("CARGO_CFG_TARGET_ARCH"), var("CARGO_CFG_TARGET_OS"));
    assert!(target == "x86_64-linux", "the runner works on x86_64-linux only, not on {target}");

    let package = PathBuf::from(var("CARGO_MANIFEST_DIR"));
    let workspace = package.ancestors().nth(2).expect("the package lies two folders below the workspace");
    for input in ["src/toolbox", "src/protocol", "Cargo.toml", "Cargo.lock"] {
        println!("cargo::rerun-if-changed={}", workspace.join(input).display());
    }

    let out = PathBuf::from(var("OUT_DIR"));
    let program = build_toolbox(workspace, &target_folder(&out).join("toolbox"));
    let bytes = fs::read(&program).unwrap_or_else(|error| panic!("{}: {error}", program.display()));
    let digest = hex::encode(Sha256::digest(&bytes));
    // A copy: the build of another profile may replace the original while this one compiles.
    fs::write(out.join("toolbox"), bytes).expect("OUT_DIR is writable");
    println!("cargo::rustc-env=TOOLBOX_SHA256={digest}");
}

/// Runs the nested cargo and returns the path of the program it made.
fn build_toolbox(workspace: &Path, folder: &Path) -> PathBuf {
    let mut cargo = Command::new(var("CARGO"));
    for (name, _) in env::vars_os() {
        let text = name.to_string_lossy();
        let kept = KEPT.iter().any(|kept| text.starts_with(kept));
        if (text.starts_with("CARGO") && !kept) || DROPPED.contains(&text.as_ref()) {
            cargo.env_remove(&name);
        }
    }
    // The encoded form holds paths with blanks, and wins over flags from configuration files. Without the prefixes the
    // program would name this machine's folders in its panic messages.
    let mut flags = vec!["-Ctarget-feature=+crt-static".to_owned()];
    flags.push(format!("--remap-path-prefix={}=/runner", workspace.display()));
    if let Some(home) = env::var_os("CARGO_HOME").map(PathBuf::from).or_else(|| Some(env::home_dir()?.join(".cargo"))) {
        flags.push(format!("--remap-path-prefix={}=/cargo", home.display()));
    }
    cargo
        .current_dir(workspace)
        .args(["build", "--locked", "--package", "toolbox", "--profile", "toolbox", "--target", TRIPLE])
        .arg("--target-dir")
        .arg(folder)
        .args(["--jobs", &var("NUM_JOBS")])
        .env("CARGO_ENCODED_RUSTFLAGS", flags.join("\x1f"));
    let status = cargo.status().unwrap_or_else(|error| panic!("{cargo:?}: {error}"));
    assert!(status.success(), "the toolbox did not build ({status}); its errors stand above");
    folder.join(TRIPLE).join("toolbox").join("toolbox")
}

/// Finds the target folder from our own output folder, `<target>/<profile>/build/<package>/out`, wherever options,
/// variables or configuration have put it. With `--target` it is that target's folder in it, which serves as well.
fn target_folder(out: &Path) -> &Path {
    out.ancestors().nth(4).expect("cargo puts OUT_DIR four folders down")
}

fn var(name: &str) -> String {
    env::var(name).unwrap_or_else(|error| panic!("{name} from cargo: {error}"))
}
