//! What the first bytes of a file say it is (T-READ-3).

/// Bytes looked at.
pub(super) const SAMPLE: usize = 8 * 1024;

/// What to do with a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Show it as text.
    Text,
    /// One of the image formats that models take.
    Image(image::ImageFormat),
    /// Say what it is.
    Binary(&'static str),
}

/// Beginnings that are never text, with what they mean. Longer ones first where one begins like another.
const MAGIC: &[(&[u8], &str)] = &[
    (b"\x7fELF", "ELF program"),
    (b"\x1f\x8b", "gzip archive"),
    (b"BZh1\x31\x41\x59\x26\x53\x59", "bzip2 archive"),
    (b"BZh9\x31\x41\x59\x26\x53\x59", "bzip2 archive"),
    (b"\xfd7zXZ\0", "xz archive"),
    (b"\x28\xb5\x2f\xfd", "Zstandard archive"),
    (b"\x04\x22\x4d\x18", "LZ4 archive"),
    (b"7z\xbc\xaf\x27\x1c", "7-Zip archive"),
    (b"Rar!\x1a\x07", "RAR archive"),
    (b"PK\x03\x04", "ZIP archive"),
    (b"PK\x05\x06", "ZIP archive"),
    (b"PK\x07\x08", "ZIP archive"),
    (b"!<arch>\n", "ar archive"),
    (b"\xed\xab\xee\xdb", "RPM package"),
    (b"%PDF-", "PDF document"),
    (b"SQLite format 3\0", "SQLite database"),
    (b"\0asm", "WebAssembly module"),
    (b"\xca\xfe\xba\xbe", "Java class or Mach-O program"),
    (b"\xcf\xfa\xed\xfe", "Mach-O program"),
    (b"\xce\xfa\xed\xfe", "Mach-O program"),
    (b"BC\xc0\xde", "LLVM bitcode"),
    (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "OLE document"),
    (b"PACK\0\0\0", "git pack"),
    (b"\xfftOc", "git pack index"),
    (b"DIRC\0\0\0", "git index"),
    (b"II*\0", "TIFF image"),
    (b"MM\0*", "TIFF image"),
    (b"8BPS\0", "Photoshop image"),
    (b"\0\0\x01\0", "icon"),
    (b"qoif", "QOI image"),
    (b"\x1a\x45\xdf\xa3", "Matroska or WebM video"),
    (b"OggS\0", "Ogg audio"),
    (b"fLaC\0", "FLAC audio"),
    (b"ID3\x02", "MP3 audio"),
    (b"ID3\x03", "MP3 audio"),
    (b"ID3\x04", "MP3 audio"),
    (b"wOFF\0", "WOFF font"),
    (b"wOF2\0", "WOFF2 font"),
    (b"OTTO\0", "OpenType font"),
    (b"\0\x01\0\0\0", "TrueType font"),
    (b"\xff\xfe\0\0", "UTF-32 text"),
    (b"\xff\xfe", "UTF-16 text"),
    (b"\xfe\xff", "UTF-16 text"),
];

/// Beginnings that are also the beginning of words: they name a file that is binary by its bytes.
const WEAK_MAGIC: &[(&[u8], &str)] = &[(b"MZ", "Windows program"), (b"BM", "BMP image"), (b"PAR1", "Parquet table")];

/// Judges a file by its first bytes, at most [`SAMPLE`].
///
/// A known beginning decides. Without one a file is binary when more than 16 bytes of the sample, and more than a tenth
/// and at least a few control bytes among them, are NUL, other control bytes or invalid UTF-8. So text with a stray NUL,
/// with escape sequences or in an eight-bit encoding stays text (T-6), and random or structured data does not. NULs at
/// the end of the sample do not count when something stands before them: a text file with a hole is still text.
pub(super) fn of(sample: &[u8]) -> Kind {
    let sample = &sample[..sample.len().min(SAMPLE)];
    if let Some(format) = image_format(sample) {
        return Kind::Image(format);
    }
    if let Some(kind) = container(sample).or_else(|| find(MAGIC, sample)) {
        return Kind::Binary(kind);
    }
    if looks_like_text(sample) { Kind::Text } else { Kind::Binary(find(WEAK_MAGIC, sample).unwrap_or("binary data")) }
}

/// What a file is whose picture cannot be shown: text all the same, or an image of this format.
pub(super) fn looks_like_text(sample: &[u8]) -> bool {
    let end = sample.iter().rposition(|byte| *byte != 0).map_or(sample.len(), |last| last + 1);
    let sample = &sample[..end];
    // Summed in bytes, so that the compiler takes many at once.
    let odd = |part: &[u8]| part.iter().map(|byte| u8::from(is_odd_control(*byte))).sum::<u8>();
    let control: usize = sample.chunks(255).map(|part| usize::from(odd(part))).sum();
    if control == 0 {
        return true;
    }
    let invalid: usize = sample.utf8_chunks().map(|chunk| chunk.invalid().len()).sum();
    let odd = control + invalid;
    odd <= 16 || odd * 10 <= sample.len() || control * 50 <= sample.len()
}

/// Controls that text has no use for; the others are `\b \t \n \v \f \r` and ESC.
fn is_odd_control(byte: u8) -> bool {
    (byte < 0x20 && !(0x08..=0x0d).contains(&byte) && byte != 0x1b) || byte == 0x7f
}

fn find(table: &[(&[u8], &'static str)], sample: &[u8]) -> Option<&'static str> {
    table.iter().find(|(magic, _)| sample.starts_with(magic)).map(|(_, kind)| *kind)
}

fn image_format(sample: &[u8]) -> Option<image::ImageFormat> {
    if sample.starts_with(b"\x89PNG\r\n\x1a\n") {
        Some(image::ImageFormat::Png)
    } else if sample.starts_with(b"\xff\xd8\xff") {
        Some(image::ImageFormat::Jpeg)
    } else if sample.starts_with(b"GIF87a") || sample.starts_with(b"GIF89a") {
        Some(image::ImageFormat::Gif)
    } else if sample.starts_with(b"RIFF") && sample.get(8..12) == Some(b"WEBP") {
        Some(image::ImageFormat::WebP)
    } else {
        None
    }
}

/// Formats whose mark does not stand at the very beginning.
fn container(sample: &[u8]) -> Option<&'static str> {
    if sample.get(257..262) == Some(b"ustar") {
        return Some("tar archive");
    }
    match (sample.get(..4), sample.get(4..8), sample.get(8..12)) {
        (Some(b"RIFF"), _, Some(b"WAVE")) => Some("WAV audio"),
        (Some(b"RIFF"), _, Some(b"AVI ")) => Some("AVI video"),
        (Some([0, 0, ..]), Some(b"ftyp"), Some(b"avif" | b"heic" | b"mif1")) => Some("AVIF or HEIC image"),
        (Some([0, 0, ..]), Some(b"ftyp"), _) => Some("MP4 video or audio"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// T-READ-3: images by content, other binary files by type.
    #[test]
    fn by_content() {
        assert_eq!(of(b"\x89PNG\r\n\x1a\n...."), Kind::Image(image::ImageFormat::Png));
        assert_eq!(of(b"\xff\xd8\xff\xe0"), Kind::Image(image::ImageFormat::Jpeg));
        assert_eq!(of(b"GIF89a\x01\0"), Kind::Image(image::ImageFormat::Gif));
        assert_eq!(of(b"RIFF\x10\0\0\0WEBPVP8 "), Kind::Image(image::ImageFormat::WebP));
        assert_eq!(of(b"\x7fELF\x02\x01"), Kind::Binary("ELF program"));
        assert_eq!(of(b"PK\x03\x04\x14\0"), Kind::Binary("ZIP archive"));
        assert_eq!(of(b"\xff\xfeh\0i\0"), Kind::Binary("UTF-16 text"));
        let mut tar = vec![0; 512];
        tar[..4].copy_from_slice(b"name");
        tar[257..262].copy_from_slice(b"ustar");
        assert_eq!(of(&tar), Kind::Binary("tar archive"));
        assert_eq!(of(&[0; 100]), Kind::Binary("binary data"));
        let mut program = b"MZ".to_vec();
        program.resize(200, 1);
        assert_eq!(of(&program), Kind::Binary("Windows program"));
    }

    /// T-6: stray control bytes, escapes and other encodings do not make a text binary.
    #[test]
    fn still_text() {
        let latin1: Vec<u8> =
            "Grüße aus Köln, schöne Straße\n".chars().map(|c| u8::try_from(u32::from(c)).unwrap()).collect();
        let cyrillic = vec![0xd7; 500];
        let mut hole = b"first line\nsecond line\n".to_vec();
        hole.resize(SAMPLE, 0);
        for text in [
            b"".as_slice(),
            b"a\xffb\0c",
            b"MZ is a country\n",
            b"\x1b[31mred\x1b[0m\r\n",
            &latin1,
            &cyrillic,
            &hole,
            b"GIF",
        ] {
            assert_eq!(of(text), Kind::Text, "{text:?}");
        }
    }

    proptest! {
        /// Valid text without control bytes is text, however long.
        #[test]
        fn valid_text_is_text(text in "[\\PC\t\n]{0,400}") {
            prop_assume!(find(MAGIC, text.as_bytes()).is_none());
            prop_assert_eq!(of(text.as_bytes()), Kind::Text);
        }

        /// T-READ-3: random bytes are not text.
        #[test]
        fn noise_is_binary(bytes in prop::collection::vec(any::<u8>(), 4096..SAMPLE)) {
            prop_assert!(matches!(of(&bytes), Kind::Binary(_)) || image_format(&bytes).is_some());
        }
    }
}
