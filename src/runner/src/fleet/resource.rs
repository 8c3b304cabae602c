//! Names of what can be locked: URIs, compared after normalisation (S-LOCK-1).
//!
//! Two spellings name the same resource when RFC 3986 says so whatever the scheme (section 6.2.2 and the empty path of
//! 6.2.3): the case of scheme and host, the case of percent-encoded bytes, bytes that need not be encoded, dot segments.

use url::Url;

/// Most bytes of a key.
const MAX: usize = 2048;

/// What a key looks like, for error messages.
const EXAMPLES: &str = "\"github://acme/app/issues/42\", \"lock://repo/branch\" or \"file:///x\"";

/// Why a text is no key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidKey {
    /// It has no scheme.
    #[error("it has no scheme; a key is a URI such as {EXAMPLES}")]
    NoScheme,
    /// It is a URI of a scheme that demands something else.
    #[error("it is not a URI ({0}); a key is one such as {EXAMPLES}")]
    NotAUri(url::ParseError),
    /// It has characters that nobody sees.
    #[error("it has a control character")]
    Control,
    /// It is longer than any name.
    #[error("it has {0} bytes; a key has at most {MAX}")]
    TooLong(usize),
}

/// The one spelling of a key.
pub fn normalise(key: &str) -> Result<String, InvalidKey> {
    if key.len() > MAX {
        return Err(InvalidKey::TooLong(key.len()));
    }
    if key.contains(char::is_control) {
        return Err(InvalidKey::Control);
    }
    let parse = |text: &str| {
        Url::parse(text).map_err(|error| match error {
            url::ParseError::RelativeUrlWithoutBase => InvalidKey::NoScheme,
            other => InvalidKey::NotAUri(other),
        })
    };
    let mut url = parse(key)?;
    // Schemes that browsers do not know keep the case of their host and an empty path.
    let host = url.host_str().map(str::to_ascii_lowercase);
    if let Some(host) = host.filter(|host| url.host_str() != Some(host)) {
        url.set_host(Some(&host)).map_err(InvalidKey::NotAUri)?;
    }
    if url.has_host() && url.path().is_empty() {
        url.set_path("/");
    }
    Ok(parse(&decoded(url.as_str()))?.into())
}

/// The URI with every percent-encoded byte that need not be decoded, and the others in upper case.
fn decoded(uri: &str) -> String {
    let mut out = String::with_capacity(uri.len());
    let mut rest = uri;
    while let Some(at) = rest.find('%') {
        out.push_str(&rest[..at]);
        let digits = rest.get(at + 1..at + 3).and_then(|two| u8::from_str_radix(two, 16).ok().map(|byte| (two, byte)));
        match digits {
            Some((_, byte)) if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) => {
                out.push(char::from(byte));
                rest = &rest[at + 3..];
            }
            Some((two, _)) => {
                out.push('%');
                out.push_str(&two.to_ascii_uppercase());
                rest = &rest[at + 3..];
            }
            None => {
                out.push('%');
                rest = &rest[at + 1..];
            }
        }
    }
    out + rest
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn key(text: &str) -> String {
        normalise(text).unwrap()
    }

    /// S-LOCK-1: equal URIs are one key, others are not.
    #[test]
    fn equivalent_spellings_are_one_key() {
        assert_eq!(key("github://acme/app/issues/42"), "github://acme/app/issues/42");
        for same in
            ["GitHub://acme/app/issues/42", "github://ACME/app/./x/../issues/42", "github://acme/%61pp/issues/42"]
        {
            assert_eq!(key(same), "github://acme/app/issues/42");
        }
        assert_eq!(key("lock://repo"), key("lock://repo/"));
        assert_eq!(key("file:///x"), "file:///x");
        assert_eq!(key("FILE:///%78"), "file:///x");
        assert_eq!(key("file://localhost/x"), "file:///x");
        assert_eq!(key("https://Example.com:443/a%2fb"), "https://example.com/a%2Fb");
        assert_eq!(key("lock://repo/a b"), "lock://repo/a%20b");
        assert_eq!(key("urn:isbn:0451450523"), "urn:isbn:0451450523");
        assert_ne!(key("github://acme/app/issues/42"), key("github://acme/App/issues/42"));
        assert_ne!(key("lock://repo/a%2Fb"), key("lock://repo/a/b"));
        assert_ne!(key("lock://repo/a?x"), key("lock://repo/a"));
    }

    /// S-LOCK-4: what is no URI says why.
    #[test]
    fn invalid_keys_say_why() {
        let why = |text: &str| normalise(text).unwrap_err();
        for bare in ["", "acme/app", "/x", "issue 42", "//host/x", "1a:b", "ümlaut:x"] {
            assert_eq!(why(bare), InvalidKey::NoScheme, "{bare:?}");
        }
        assert!(matches!(why("http://"), InvalidKey::NotAUri(_)));
        assert!(matches!(why("http://a:99999/"), InvalidKey::NotAUri(_)));
        assert_eq!(why("lock://a\nb"), InvalidKey::Control);
        assert_eq!(why(&format!("lock://{}", "x".repeat(MAX))), InvalidKey::TooLong(MAX + 7));
    }

    fn anything_like_a_uri() -> impl Strategy<Value = String> {
        prop_oneof![
            "[a-zA-Z][a-z+.-]{0,5}:(//)?[a-zA-Z0-9./%@:?#\\[\\]_~ -]{0,24}",
            "(http|file|github|lock|urn)://[a-zA-Z0-9.]{1,6}(/(\\.|\\.\\.|%2[eEfF]|%[0-9a-fA-F]{2}|[a-z]){0,4}){0,4}",
            "\\PC{0,20}",
        ]
    }

    proptest! {
        /// S-LOCK-1: a normalised key stays as it is.
        #[test]
        fn normalising_twice_changes_nothing(text in anything_like_a_uri()) {
            if let Ok(once) = normalise(&text) {
                prop_assert_eq!(normalise(&once), Ok(once));
            }
        }

        /// S-LOCK-1: scheme and host in any case, and bytes encoded without need, are the same key.
        #[test]
        fn other_spellings_are_equal(
            host in "[a-z0-9]{1,8}",
            steps in prop::collection::vec("[a-zA-Z0-9_~-]{1,6}", 0..4),
            upper in any::<bool>(),
            lower_hex in any::<bool>(),
            encode in any::<u8>(),
        ) {
            let plain = format!("lock://{host}/{}", steps.join("/"));
            let scheme = if upper { "LOCK" } else { "Lock" };
            let path: Vec<String> = steps.iter().enumerate().map(|(at, step)| {
                let hex = |byte: u8| if lower_hex { format!("%{byte:02x}") } else { format!("%{byte:02X}") };
                if encode >> (at % 8) & 1 == 1 { step.bytes().map(hex).collect() } else { format!("./{step}") }
            }).collect();
            let other = format!("{scheme}://{}/{}", host.to_ascii_uppercase(), path.join("/"));
            prop_assert_eq!(normalise(&other), normalise(&plain));
        }
    }
}
