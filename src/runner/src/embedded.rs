//! The toolbox as bytes: the static program that is PID 1 of each container, built by `build.rs`.

/// The program.
pub const TOOLBOX: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/toolbox"));

/// SHA-256 of [`TOOLBOX`], in lower-case hexadecimal digits.
pub const TOOLBOX_SHA256: &str = env!("TOOLBOX_SHA256");

#[cfg(test)]
mod tests {
    use super::*;

    /// Program header of an ELF file that names the loader; a static program has none.
    const PT_INTERP: usize = 3;

    #[test]
    fn the_toolbox_is_a_static_program() {
        assert_eq!(TOOLBOX[..6], *b"\x7fELF\x02\x01", "a 64-bit little-endian ELF file");
        let headers = number(32, 8);
        let size = number(54, 2);
        let kinds: Vec<usize> = (0..number(56, 2)).map(|index| number(headers + index * size, 4)).collect();
        assert!(!kinds.is_empty());
        assert!(!kinds.contains(&PT_INTERP), "the toolbox asks for a loader: {kinds:?}");
    }

    fn number(at: usize, bytes: usize) -> usize {
        TOOLBOX[at..at + bytes].iter().rev().fold(0, |sum, byte| sum << 8 | usize::from(*byte))
    }
}
