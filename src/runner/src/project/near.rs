//! Names that somebody may have meant.

/// The known names close to `given`, best first, at most three.
pub(crate) fn near<'a>(given: &str, known: impl IntoIterator<Item = &'a str>) -> Vec<String> {
    let lower = given.to_lowercase();
    let mut scored: Vec<(f64, &str)> = known
        .into_iter()
        .map(|name| {
            let other = name.to_lowercase();
            // A name that contains the other is meant more often than its edit distance says: `mem` for `memory`.
            let contains = lower.len() >= 3 && (other.contains(&lower) || lower.contains(&other) && other.len() >= 3);
            // So is one whose letters stand in the other's in order: `cmd` for `command`.
            let shortened = lower.len() >= 3 && is_short_for(&lower, &other);
            let score = strsim::normalized_damerau_levenshtein(&lower, &other);
            let least = if contains {
                0.75
            } else if shortened {
                0.6
            } else {
                0.0
            };
            (score.max(least), name)
        })
        .filter(|(score, _)| *score >= 0.6)
        .collect();
    scored.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(b.1)));
    scored.into_iter().take(3).map(|(_, name)| name.to_owned()).collect()
}

/// Whether `short` begins like `long` and leaves letters of it out.
fn is_short_for(short: &str, long: &str) -> bool {
    let mut letters = long.chars();
    short.chars().next() == long.chars().next() && short.chars().all(|letter| letters.any(|other| other == letter))
}

#[cfg(test)]
mod tests {
    use super::near;

    #[test]
    fn close_names_come_first_and_far_ones_not_at_all() {
        let known = ["memory", "cpus", "pids", "tmpSize", "tmpInodes"];
        assert_eq!(near("memroy", known), ["memory"]);
        assert_eq!(near("mem", known), ["memory"]);
        assert_eq!(near("tmpsize", known), ["tmpSize"]);
        assert_eq!(near("cmd", ["timeout", "command"]), ["command"]);
        assert_eq!(near("omd", ["timeout", "command"]), Vec::<String>::new(), "another letter at the beginning");
        assert_eq!(near("unlike anything", known), Vec::<String>::new());
    }
}
