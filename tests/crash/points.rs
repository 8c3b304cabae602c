//! The crash points: those of the sources, and those that the matrix visits, are the same.

use std::collections::BTreeSet;
use std::path::Path;

/// Makes a test of each point, so that each has a time of its own, and lists them all.
macro_rules! points {
    ($visit:path; $($name:ident = $point:literal,)*) => {
        /// Every point that the matrix visits.
        pub(super) const VISITED: &[&str] = &[$($point),*];

        $(
            #[test]
            fn $name() {
                $visit($point);
            }
        )*
    };
}
pub(super) use points;

/// Points of the sources whose name is written out, in files of the product.
fn written_out(folder: &Path, found: &mut BTreeSet<String>) {
    for entry in std::fs::read_dir(folder).expect("the sources").flatten() {
        let path = entry.path();
        if path.is_dir() {
            written_out(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = std::fs::read_to_string(&path).expect("UTF-8");
            let literals = |after: &str| -> Vec<String> {
                let names = text.split(after).skip(1).filter_map(|rest| rest.split('"').next());
                names.map(str::to_owned).collect()
            };
            found.extend(literals("crash::point(\""));
            let mut verbs: Vec<String> =
                ["Kind::durable(\"", "Kind::light(\""].into_iter().flat_map(literals).collect();
            if path.ends_with("store/operation.rs") {
                verbs.extend(literals("=> \""));
            }
            for verb in verbs.into_iter().filter(|verb| !NOTHING_WRITTEN.contains(&verb.as_str())) {
                found.extend(["before", "after"].map(|moment| format!("commit.{verb}.{moment}")));
            }
        }
    }
}

/// Operations that are no change of the store, or that only its own tests ask for: journal lines bring their payloads.
const NOTHING_WRITTEN: [&str; 3] = ["flush", "barrier", "put_blob"];

/// No point of the sources is left out.
#[test]
fn every_point_is_visited() {
    let mut found = BTreeSet::new();
    written_out(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut found);
    assert!(!found.is_empty(), "the sources have points");
    let visited: BTreeSet<String> = super::matrix::VISITED
        .iter()
        .chain(super::commands::VISITED)
        .chain(&["commit.expire_waits.before", "commit.expire_waits.after"])
        .map(|point| (*point).to_owned())
        .collect();
    let missed: Vec<&String> = found.difference(&visited).collect();
    assert_eq!(missed, Vec::<&String>::new(), "points that no test dies at");
}
