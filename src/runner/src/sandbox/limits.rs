//! A sandbox's limits: what may be asked for, and what holds when nothing is asked.

use serde::{Deserialize, Serialize};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

const MEMORY_MIN: u64 = 64 * MIB;
const MEMORY_MAX: u64 = 16 << 40;
const MEMORY_DEFAULT: u64 = 4 * GIB;
const CPUS_MIN: u32 = 100;
const CPUS_DEFAULT: u32 = 2000;
const PIDS: std::ops::RangeInclusive<i64> = 16..=65_536;
const PIDS_DEFAULT: u32 = 512;
const TMP_MIN: u64 = MIB;
const TMP_DEFAULT: u64 = GIB;
const TMP_INODES: std::ops::RangeInclusive<i64> = 64..=100_000_000;
const TMP_INODES_DEFAULT: u64 = 200_000;

/// Memory for each inode of /tmp: an inode with a long name takes a tenth of this, outside the size of /tmp, and stays
/// when the kernel has killed everybody else at the memory limit, so the next to be killed is PID 1.
const MEMORY_PER_INODE: u64 = 16 * KIB;

/// Bytes of /dev/shm, which count against the memory limit like those of /tmp.
pub(crate) const SHM_SIZE: u64 = 16 * MIB;
/// Inodes of /dev/shm: the kernel's default is half as many as the host has pages, a few GiB of memory.
pub(crate) const SHM_INODES: u64 = 1024;

/// The limits of one sandbox. They are consistent: /tmp and /dev/shm together fit into half the memory, and so many
/// inodes leave room for PID 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Limits {
    /// Bytes of memory, tmpfs pages included; there is no swap.
    pub memory: u64,
    /// Thousandths of a CPU.
    pub milli_cpus: u32,
    /// Processes and threads.
    pub pids: u32,
    /// Bytes of /tmp.
    pub tmp_size: u64,
    /// Inodes of /tmp.
    pub tmp_inodes: u64,
}

/// Limits as people write them, `None` where they wrote nothing.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Wanted {
    /// `local.memory`, like "4g".
    pub memory: Option<String>,
    /// `local.cpus`.
    pub cpus: Option<f64>,
    /// `local.pids`.
    pub pids: Option<i64>,
    /// `local.tmpSize`, like "512m".
    pub tmp_size: Option<String>,
    /// `local.tmpInodes`.
    pub tmp_inodes: Option<i64>,
}

/// Why a limit cannot be: names the key, what was written and what is possible.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LimitsError {
    /// Not a size.
    #[error("{key} is {value:?}; it must be a size like \"512m\" or \"4g\"")]
    NotASize {
        /// The key in config.toml.
        key: &'static str,
        /// What was written.
        value: String,
    },
    /// Outside the range.
    #[error("{key} is {value}; it must be {range}")]
    OutOfRange {
        /// The key in config.toml.
        key: &'static str,
        /// What was written.
        value: String,
        /// The range in words.
        range: String,
    },
    /// More memory for files than half the memory.
    #[error(
        "local.tmpSize is {}; with the 16m of /dev/shm it must be at most half of local.memory ({}), so at most {}",
        show_size(*tmp_size), show_size(*memory), show_size(memory / 2 - SHM_SIZE)
    )]
    TmpTooLarge {
        /// The size of /tmp in bytes.
        tmp_size: u64,
        /// The memory limit in bytes.
        memory: u64,
    },
    /// More inodes than fit beside the rest.
    #[error(
        "local.tmpInodes is {inodes}; with local.memory {} it must be at most {}, one for each 16k",
        show_size(*memory), memory / MEMORY_PER_INODE
    )]
    TooManyInodes {
        /// The inodes of /tmp.
        inodes: u64,
        /// The memory limit in bytes.
        memory: u64,
    },
}

impl Limits {
    /// Checks what was written against the ranges and each other, and fills in what was not.
    ///
    /// `host_cpus` is the engine's count of processors: a container cannot have more.
    ///
    /// # Errors
    /// Every limit that cannot be; limits are compared with each other only when each is within its range.
    pub fn resolve(wanted: &Wanted, host_cpus: u32) -> Result<Limits, Vec<LimitsError>> {
        let mut errors = Vec::new();
        let memory = size("local.memory", wanted.memory.as_deref(), MEMORY_MIN, MEMORY_MAX);
        let memory = memory.map(|memory| memory.unwrap_or(MEMORY_DEFAULT)).map_err(|error| errors.push(error));
        let tmp_size = size("local.tmpSize", wanted.tmp_size.as_deref(), TMP_MIN, MEMORY_MAX);
        let tmp_size = tmp_size.map_err(|error| errors.push(error));
        let tmp_inodes = number("local.tmpInodes", wanted.tmp_inodes, &TMP_INODES);
        let tmp_inodes = tmp_inodes.map_err(|error| errors.push(error));
        let milli_cpus = milli_cpus(wanted.cpus, host_cpus.max(1)).map_err(|error| errors.push(error));
        let pids = number("local.pids", wanted.pids, &PIDS).map_err(|error| errors.push(error));
        let tmp_size = memory.and_then(|memory| {
            let tmp_size = tmp_size?.unwrap_or_else(|| TMP_DEFAULT.min(memory / 4));
            if tmp_size + SHM_SIZE > memory / 2 {
                errors.push(LimitsError::TmpTooLarge { tmp_size, memory });
            }
            Ok(tmp_size)
        });
        let tmp_inodes = memory.and_then(|memory| {
            let most = memory / MEMORY_PER_INODE;
            let inodes = tmp_inodes?.map_or(TMP_INODES_DEFAULT.min(most), i64::unsigned_abs);
            if inodes > most {
                errors.push(LimitsError::TooManyInodes { inodes, memory });
            }
            Ok(inodes)
        });
        match (memory, milli_cpus, pids, tmp_size, tmp_inodes) {
            (Ok(memory), Ok(milli_cpus), Ok(pids), Ok(tmp_size), Ok(tmp_inodes)) if errors.is_empty() => {
                let pids = pids.map_or(PIDS_DEFAULT, |n| u32::try_from(n).unwrap_or(u32::MAX));
                Ok(Limits { memory, milli_cpus, pids, tmp_size, tmp_inodes })
            }
            _ => Err(errors),
        }
    }
}

fn out_of_range(key: &'static str, value: &dyn std::fmt::Display, range: String) -> LimitsError {
    LimitsError::OutOfRange { key, value: value.to_string(), range }
}

fn milli_cpus(wanted: Option<f64>, host_cpus: u32) -> Result<u32, LimitsError> {
    let Some(cpus) = wanted else { return Ok(CPUS_DEFAULT.min(host_cpus.saturating_mul(1000))) };
    // Written so that NaN is outside.
    if !(0.1..=f64::from(host_cpus)).contains(&cpus) {
        return Err(out_of_range("local.cpus", &cpus, format!("0.1 to {host_cpus}, the host's number of processors")));
    }
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "within the range checked above")]
    let milli = (cpus * 1000.0).round() as u32;
    Ok(milli.max(CPUS_MIN))
}

fn number(
    key: &'static str,
    wanted: Option<i64>,
    range: &std::ops::RangeInclusive<i64>,
) -> Result<Option<i64>, LimitsError> {
    match wanted {
        Some(value) if !range.contains(&value) => {
            Err(out_of_range(key, &value, format!("{} to {}", range.start(), range.end())))
        }
        other => Ok(other),
    }
}

fn size(key: &'static str, text: Option<&str>, min: u64, max: u64) -> Result<Option<u64>, LimitsError> {
    let Some(text) = text else { return Ok(None) };
    let range = || format!("{} to {}", show_size(min), show_size(max));
    if text.trim_start().starts_with('-') {
        return Err(out_of_range(key, &format!("{text:?}"), range()));
    }
    match parse_size(text) {
        None => Err(LimitsError::NotASize { key, value: text.to_owned() }),
        Some(bytes) if bytes < min || bytes > max => Err(out_of_range(key, &format!("{text:?}"), range())),
        Some(bytes) => Ok(Some(bytes)),
    }
}

/// Reads a size: a number, at most three decimals, and an optional unit `b k m g t` (powers of 1024; `KiB` and `kb` mean
/// the same). Beyond 64 bits it is the largest number, which no range allows.
pub fn parse_size(text: &str) -> Option<u64> {
    let text = text.trim().to_ascii_lowercase();
    let unit_at = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(unit_at);
    let unit: u128 = match unit.trim_start() {
        "" | "b" => 1,
        "k" | "kb" | "kib" => u128::from(KIB),
        "m" | "mb" | "mib" => u128::from(MIB),
        "g" | "gb" | "gib" => u128::from(GIB),
        "t" | "tb" | "tib" => 1 << 40,
        _ => return None,
    };
    let (whole, decimals) = number.split_once('.').unwrap_or((number, "0"));
    if whole.is_empty() || decimals.is_empty() || decimals.len() > 3 || decimals.contains('.') {
        return None;
    }
    // Only digits are left, so a number that does not fit is too large and nothing else.
    let whole = whole.parse::<u64>().map_or(u128::from(u64::MAX), u128::from);
    let scale = 10u128.pow(u32::try_from(decimals.len()).ok()?);
    let bytes = whole * unit + decimals.parse::<u128>().ok()? * unit / scale;
    Some(u64::try_from(bytes).unwrap_or(u64::MAX))
}

/// Writes a size as people write it: the largest unit that divides it.
pub fn show_size(bytes: u64) -> String {
    for (unit, name) in [(1 << 40, "t"), (GIB, "g"), (MIB, "m"), (KIB, "k")] {
        if bytes >= unit && bytes.is_multiple_of(unit) {
            return format!("{}{name}", bytes / unit);
        }
    }
    format!("{bytes} bytes")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn refused(wanted: &Wanted) -> String {
        Limits::resolve(wanted, 4).unwrap_err()[0].to_string()
    }

    fn memory(text: &str) -> Wanted {
        Wanted { memory: Some(text.to_owned()), ..Wanted::default() }
    }

    fn tmp(text: &str) -> Wanted {
        Wanted { tmp_size: Some(text.to_owned()), ..Wanted::default() }
    }

    /// config.md "Keys": the defaults.
    #[test]
    fn defaults() {
        let expected = Limits { memory: 4 * GIB, milli_cpus: 2000, pids: 512, tmp_size: GIB, tmp_inodes: 200_000 };
        assert_eq!(Limits::resolve(&Wanted::default(), 8).unwrap(), expected);
        assert_eq!(Limits::resolve(&Wanted::default(), 1).unwrap(), Limits { milli_cpus: 1000, ..expected });
        let small = Limits::resolve(&memory("64m"), 8).unwrap();
        assert_eq!((small.memory, small.tmp_size, small.tmp_inodes), (64 * MIB, 16 * MIB, 4096));
    }

    /// bug 38: a limit set to 1, 0, negative or absurd → an error that names the key and the range.
    #[test]
    fn limits_out_of_range_name_key_and_range() {
        let default = Wanted::default();
        let cases = [
            (memory("1"), "local.memory", "64m to 16t"),
            (memory("0"), "local.memory", "64m to 16t"),
            (memory("-4g"), "local.memory", "64m to 16t"),
            (memory("999999999999999999999999g"), "local.memory", "64m to 16t"),
            (memory("lots"), "local.memory", "a size like"),
            (memory(""), "local.memory", "a size like"),
            (Wanted { cpus: Some(0.0), ..default.clone() }, "local.cpus", "0.1 to 4"),
            (Wanted { cpus: Some(-1.0), ..default.clone() }, "local.cpus", "0.1 to 4"),
            (Wanted { cpus: Some(5.0), ..default.clone() }, "local.cpus", "0.1 to 4"),
            (Wanted { cpus: Some(f64::NAN), ..default.clone() }, "local.cpus", "0.1 to 4"),
            (Wanted { cpus: Some(f64::INFINITY), ..default.clone() }, "local.cpus", "0.1 to 4"),
            (Wanted { pids: Some(1), ..default.clone() }, "local.pids", "16 to 65536"),
            (Wanted { pids: Some(0), ..default.clone() }, "local.pids", "16 to 65536"),
            (Wanted { pids: Some(-1), ..default.clone() }, "local.pids", "16 to 65536"),
            (Wanted { pids: Some(i64::MAX), ..default.clone() }, "local.pids", "16 to 65536"),
            (tmp("1"), "local.tmpSize", "1m to 16t"),
            (tmp("0"), "local.tmpSize", "1m to 16t"),
            (tmp("-1"), "local.tmpSize", "1m to 16t"),
            (tmp("99999999999t"), "local.tmpSize", "1m to 16t"),
            (Wanted { tmp_inodes: Some(1), ..default.clone() }, "local.tmpInodes", "64 to 100000000"),
            (Wanted { tmp_inodes: Some(0), ..default.clone() }, "local.tmpInodes", "64 to 100000000"),
            (Wanted { tmp_inodes: Some(-1), ..default.clone() }, "local.tmpInodes", "64 to 100000000"),
            (Wanted { tmp_inodes: Some(i64::MAX), ..default }, "local.tmpInodes", "64 to 100000000"),
        ];
        for (wanted, key, range) in cases {
            let message = refused(&wanted);
            assert!(
                message.contains(key) && message.contains(range),
                "{wanted:?}: {message:?} lacks {key:?} or {range:?}"
            );
        }
    }

    /// bug 36: a /tmp larger than half the memory is refused at load.
    #[test]
    fn tmp_and_shm_fit_into_half_the_memory() {
        let both = |memory: &str, tmp: &str| Wanted {
            memory: Some(memory.to_owned()),
            tmp_size: Some(tmp.to_owned()),
            ..Wanted::default()
        };
        assert_eq!(Limits::resolve(&both("1g", "496m"), 1).unwrap().tmp_size, 496 * MIB);
        assert_eq!(
            refused(&both("1g", "497m")),
            "local.tmpSize is 497m; with the 16m of /dev/shm it must be at most half of local.memory (1g), so at most 496m"
        );
    }

    /// bug 34: inodes take memory that no kill gives back, so their number is bound to it.
    #[test]
    fn inodes_leave_memory_for_the_rest() {
        let both = |inodes| Wanted { tmp_inodes: Some(inodes), ..memory("1g") };
        assert_eq!(Limits::resolve(&both(65_536), 1).unwrap().tmp_inodes, 65_536);
        assert_eq!(
            refused(&both(65_537)),
            "local.tmpInodes is 65537; with local.memory 1g it must be at most 65536, one for each 16k"
        );
    }

    #[test]
    fn sizes_are_read_in_every_usual_form() {
        let cases = [
            ("4g", 4 * GIB),
            ("512m", 512 * MIB),
            (" 512 MiB ", 512 * MIB),
            ("1.5g", 3 * GIB / 2),
            ("64MB", 64 * MIB),
            ("1048576", MIB),
            ("2k", 2048),
            ("1t", 1 << 40),
            ("7b", 7),
        ];
        for (text, bytes) in cases {
            assert_eq!(parse_size(text), Some(bytes), "{text}");
        }
        for text in ["", "g", ".5g", "1.g", "1.2.3g", "1.2345g", "4x", "4gg", "0x10", "+4g", "1e3"] {
            assert_eq!(parse_size(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read_without_a_panic(text in ".*") {
            let _ = parse_size(&text);
        }

        #[test]
        fn shown_sizes_read_back(bytes in 0u64..=MEMORY_MAX) {
            prop_assert_eq!(parse_size(&show_size(bytes).replace(" bytes", "b")), Some(bytes));
        }
    }
}
