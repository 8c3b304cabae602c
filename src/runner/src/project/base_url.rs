//! `baseUrl`: where a provider answers.
//!
//! A key and the whole conversation go there. So it is https, or plain http to this machine; the providers that work
//! without a key may also be at a private address, and are never sent a key in plain text over a network.

use std::net::IpAddr;

use reqwest::Url;

use super::error::ProjectError;
use super::provider::{Provider, ProviderSettings};
use super::section::Found;

/// Longest in bytes.
const LENGTH: usize = 2000;

/// What one looks like.
const EXAMPLE: &str = "such as \"https://models.example.com/v1\"";

/// The URL in its normal form, which ends in `/`.
pub(super) fn check(model: &str, provider: Provider, written: &Found<String>) -> Result<String, ProjectError> {
    // What was written is not repeated: a URL that is wrong may well be one with a password in it.
    let wrong = |what: &str, hint: &str| ProjectError::Content {
        place: written.place.clone(),
        what: format!("`models.{model}.baseUrl` {what}"),
        hint: Some(hint.to_owned()),
    };
    if written.value.len() > LENGTH {
        return Err(wrong(&format!("is longer than {LENGTH} bytes"), EXAMPLE));
    }
    // The parser would drop control characters and spaces, so that another URL is used than the one seen.
    if written.value.chars().any(|c| c.is_control() || c.is_whitespace()) {
        return Err(wrong("has a space or a control character", EXAMPLE));
    }
    let mut url = Url::parse(&written.value).map_err(|error| wrong(&format!("is not a URL: {error}"), EXAMPLE))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(wrong(&format!("must be http or https, not {:?}", url.scheme()), EXAMPLE));
    }
    if url.host_str().is_none_or(str::is_empty) {
        return Err(wrong("has no host", EXAMPLE));
    }
    if !url.username().is_empty() || url.password().is_some() {
        let hint = format!("put the key into {} instead", provider.key_variable());
        return Err(wrong("has a user or a password in it", &hint));
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Err(wrong("has a query or a fragment", "end it after the path"));
    }
    if url.scheme() == "http" && !is_this_machine(&url) && (provider.needs_key() || !is_private(&url)) {
        return Err(if provider.needs_key() {
            wrong("is plain http to another machine, which would show the key to the network", "use https")
        } else {
            wrong(
                "is plain http to another machine",
                "use https; plain http is for this machine and private addresses such as 192.168.1.5",
            )
        });
    }
    if !url.path().ends_with('/') {
        let path = format!("{}/", url.path());
        url.set_path(&path);
    }
    Ok(url.into())
}

impl ProviderSettings {
    /// True when nobody on the way can read what is sent: a key may go there.
    pub fn keeps_secrets(&self) -> bool {
        let Some(url) = &self.base_url else { return true };
        Url::parse(url).is_ok_and(|url| url.scheme() == "https" || is_this_machine(&url))
    }
}

/// The host as an address, if it is written as one.
fn address(url: &Url) -> Option<IpAddr> {
    let host = url.host_str()?;
    host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>().ok().map(|address| address.to_canonical())
}

fn is_this_machine(url: &Url) -> bool {
    match address(url) {
        Some(address) => address.is_loopback(),
        // RFC 6761: no resolver may send it elsewhere.
        None => url.host_str() == Some("localhost"),
    }
}

/// RFC 1918, RFC 4193 and link-local addresses.
fn is_private(url: &Url) -> bool {
    match address(url) {
        Some(IpAddr::V4(address)) => address.is_private() || address.is_link_local(),
        Some(IpAddr::V6(address)) => address.is_unique_local() || address.is_unicast_link_local(),
        None => false,
    }
}
