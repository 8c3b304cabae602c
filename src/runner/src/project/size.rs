//! Sizes as people write them: `"512m"`, `"4g"`, or a number of bytes.

/// The bytes that `text` stands for: digits, then nothing, `k`, `m`, `g` or `t` (powers of 1024, either case, an added
/// `b` or `ib` is accepted).
pub(crate) fn parse(text: &str) -> Option<u64> {
    let lower = text.trim().to_ascii_lowercase();
    let digits = lower.bytes().take_while(u8::is_ascii_digit).count();
    let number: u64 = lower[..digits].parse().ok()?;
    let shift = match lower[digits..].trim_start() {
        "" | "b" => 0,
        "k" | "kb" | "kib" => 10,
        "m" | "mb" | "mib" => 20,
        "g" | "gb" | "gib" => 30,
        "t" | "tb" | "tib" => 40,
        _ => return None,
    };
    number.checked_mul(1 << shift)
}

/// Writes `bytes` the way people write it, in the largest unit that divides it.
pub(crate) fn show(bytes: u64) -> String {
    for (shift, unit) in [(40, "t"), (30, "g"), (20, "m"), (10, "k")] {
        if bytes != 0 && bytes.is_multiple_of(1 << shift) {
            return format!("{}{unit}", bytes >> shift);
        }
    }
    bytes.to_string()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn units_are_powers_of_1024() {
        assert_eq!(parse("4g"), Some(4 << 30));
        assert_eq!(parse("64M"), Some(64 << 20));
        assert_eq!(parse("1 GiB"), Some(1 << 30));
        assert_eq!(parse("1024"), Some(1024));
        for wrong in ["", "g", "-1g", "1.5g", "1x", "99999999999999999999", "20000000t"] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn shown_sizes_read_back(bytes in any::<u64>()) {
            prop_assert_eq!(parse(&show(bytes)), Some(bytes));
        }
    }
}
