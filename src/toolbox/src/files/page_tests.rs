use proptest::prelude::*;

use super::*;

fn page(text: &[u8], first: u64, limit: Option<u64>, piece: usize) -> (Vec<u8>, Result<TextWindow, u64>) {
    let mut shown = Vec::new();
    let mut page = Page::new(&mut shown, first, limit);
    for piece in text.chunks(piece) {
        page.feed(piece);
    }
    let window = page.finish("/f");
    (shown, window)
}

/// The same by the simplest means, for comparison.
fn expected(text: &[u8], first: u64, limit: Option<u64>) -> (String, Result<TextWindow, u64>) {
    let lines: Vec<&[u8]> = text.split_inclusive(|byte| *byte == b'\n').collect();
    let total_lines = lines.len() as u64;
    if first > total_lines.max(1) {
        return (String::new(), Err(total_lines));
    }
    let (mut shown, mut last, mut clipped, mut full) = (String::new(), first - 1, Vec::new(), false);
    let most = limit.unwrap_or(MAX_LINES).min(MAX_LINES);
    for line in lines.iter().skip(usize::try_from(first).unwrap() - 1).take(usize::try_from(most).unwrap()) {
        let whole = String::from_utf8_lossy(line);
        let bare = whole.strip_suffix('\n').unwrap_or(&whole);
        let mut part: String = bare.chars().take(2_000).collect();
        if part.len() < bare.len() {
            clipped.push((last + 1, bare.chars().count() as u64));
        }
        if whole.ends_with('\n') {
            part.push('\n');
        }
        if shown.len() + part.len() > 50 * 1024 {
            full = true;
            if clipped.last().is_some_and(|(line, _)| *line == last + 1) {
                clipped.pop();
            }
            break;
        }
        shown.push_str(&part);
        last += 1;
    }
    let window = TextWindow {
        path: "/f".to_owned(),
        first: if total_lines == 0 { 0 } else { first },
        last: if total_lines == 0 { 0 } else { last },
        total_lines,
        total_bytes: text.len() as u64,
        clipped,
        cut: last < total_lines && (full || limit.is_none_or(|limit| limit > 2_000)),
    };
    (shown, Ok(window))
}

/// T-READ-1: an empty text is line 0 of 0, and has no second line.
#[test]
fn empty() {
    let (shown, window) = page(b"", 1, None, 1);
    let window = window.unwrap();
    assert_eq!((window.first, window.last, window.total_lines, shown.len()), (0, 0, 0, 0));
    assert_eq!(page(b"", 2, None, 1).1, Err(0));
}

/// T-READ-1: past the end is told with the number of lines; a last line without its end counts.
#[test]
fn past_the_end() {
    assert_eq!(page(b"a\nb\n", 3, None, 9).1, Err(2));
    assert_eq!(page(b"a\nb", 3, Some(1), 1).1, Err(2));
    assert_eq!(page(b"a\nb", 2, Some(1), 1).0, b"b");
}

/// T-5: at most 2,000 lines, whatever is asked for; only that counts as cut.
#[test]
fn two_thousand_lines() {
    let text = "x\n".repeat(5_000);
    let (shown, window) = page(text.as_bytes(), 1, None, 777);
    let window = window.unwrap();
    assert_eq!((shown.len(), window.last, window.total_lines, window.cut), (4_000, 2_000, 5_000, true));
    let window = page(text.as_bytes(), 1, Some(9_999), 777).1.unwrap();
    assert_eq!((window.last, window.cut), (2_000, true));
    let window = page(text.as_bytes(), 1, Some(2_000), 777).1.unwrap();
    assert_eq!((window.last, window.cut), (2_000, false));
    let window = page(text.as_bytes(), 4_001, None, 777).1.unwrap();
    assert_eq!((window.first, window.last, window.cut), (4_001, 5_000, false));
}

/// T-5: at most 50 KiB as shown, in whole lines; one line always fits.
#[test]
fn fifty_kibibytes() {
    let text = format!("{}\n", "y".repeat(1_023)).repeat(60);
    let (shown, window) = page(text.as_bytes(), 1, None, 4_096);
    let window = window.unwrap();
    assert_eq!((shown.len(), window.last, window.cut), (50 * 1024, 50, true));
    // Each invalid byte is shown as three.
    let text = [[0xff; 1_023].as_slice(), b"\n"].concat().repeat(60);
    let (shown, window) = page(&text, 1, None, 4_096);
    assert_eq!(window.unwrap().last, 16);
    assert!(String::from_utf8_lossy(&shown).len() <= 50 * 1024);
}

/// T-READ-2: a long line is clipped with its length, on a character, and counts as one line.
#[test]
fn long_lines() {
    let text = format!("a\n{}\nb\n", "🙂".repeat(3_000));
    let (shown, window) = page(text.as_bytes(), 1, None, 4_097);
    let window = window.unwrap();
    assert_eq!(String::from_utf8(shown).unwrap(), format!("a\n{}\nb\n", "🙂".repeat(2_000)));
    assert_eq!((window.clipped, window.last, window.cut), (vec![(2, 3_000)], 3, false));
    let exact = "é".repeat(2_000);
    assert_eq!(page(exact.as_bytes(), 1, None, 3).1.unwrap().clipped, []);
}

/// Bug 26: a hole counts like the zeros it stands for, before, in and behind the window.
#[test]
fn holes() {
    for (begin, hole, end) in [("a\nb", 20_000u64, "c\nd\n"), ("", 9_000, "\n"), ("x\n", 300, "y"), ("é", 8_001, "")] {
        let zeros = "\0".repeat(usize::try_from(hole).unwrap());
        let whole = [begin, &zeros, end].concat();
        for first in 1..4 {
            let mut shown = Vec::new();
            let mut page = Page::new(&mut shown, first, Some(2));
            page.feed(begin.as_bytes());
            page.hole(hole);
            page.feed(end.as_bytes());
            let window = page.finish("/f");
            let (expected_shown, expected_window) = expected(whole.as_bytes(), first, Some(2));
            assert_eq!((String::from_utf8(shown).unwrap(), window), (expected_shown, expected_window));
        }
    }
}

fn text() -> impl Strategy<Value = Vec<u8>> {
    let line = prop_oneof![
        8 => prop::collection::vec(any::<u8>(), 0..40),
        8 => ".{0,60}".prop_map(String::into_bytes),
        1 => (1_990usize..2_010, prop_oneof![Just("a"), Just("日"), Just("🙂")]).prop_map(|(n, c)| c.repeat(n).into_bytes()),
        1 => (1_990usize..2_010).prop_map(|n| vec![0xe6; n]),
    ];
    let many = (0usize..2_200).prop_map(|n| b"z\n".repeat(n));
    (prop::collection::vec(line, 0..60), many, any::<bool>()).prop_map(|(lines, many, first)| {
        let lines = lines.join(&b'\n');
        if first { [many, lines].concat() } else { [lines, many].concat() }
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    /// T-5, T-6, T-READ-1, T-READ-2: however the bytes arrive, the window is what a simple reading of the whole gives.
    #[test]
    fn like_the_simple_way(text in text(), first in 1u64..2_300, near in any::<bool>(), limit in prop::option::of(1u64..2_200), piece in 1usize..9_000) {
        let first = if near { first % 50 + 1 } else { first };
        let (shown, window) = page(&text, first, limit, piece);
        let (expected_shown, expected_window) = expected(&text, first, limit);
        prop_assert_eq!(String::from_utf8_lossy(&shown), expected_shown);
        prop_assert_eq!(window, expected_window);
    }

    /// T-5: windows that go on where the last one ended show every line once.
    #[test]
    fn paging_shows_everything_once(text in text()) {
        let (mut all, mut first) = (Vec::new(), 1);
        loop {
            let (shown, window) = page(&text, first, None, 4_096);
            let window = window.unwrap();
            all.extend(shown);
            if window.last == window.total_lines {
                break;
            }
            prop_assert!(window.last >= first, "a window shows at least one line");
            prop_assert!(window.cut);
            first = window.last + 1;
        }
        let lines = text.split_inclusive(|byte| *byte == b'\n').count();
        prop_assert_eq!(all.split_inclusive(|byte| *byte == b'\n').count(), lines);
    }
}
