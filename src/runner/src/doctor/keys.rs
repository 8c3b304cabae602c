//! Keys of providers: which are there, and whether they are kept as they should be. No part of a key is ever printed.

use super::Finding;
use crate::model::credentials;
use crate::project::Provider;

pub(super) fn examine() -> Finding {
    const CHECK: &str = "model-keys";
    let mut there = Vec::new();
    for provider in Provider::ALL {
        match credentials::find(provider) {
            Ok(Some(key)) => there.push(format!("{provider} ({})", key.origin)),
            Ok(None) => {}
            Err(error) => return Finding::from_error(CHECK, &error),
        }
    }
    if there.is_empty() {
        let provider = Provider::Anthropic;
        let (variable, file) = (provider.key_variable(), credentials::file_of(provider));
        let remedy =
            format!("for a model of {provider}, set {variable}, or write its key to {} (mode 0600)", file.display());
        return Finding::warning(
            CHECK,
            "no provider has a key: agents think with scripts or local models only",
            remedy,
        );
    }
    Finding::fine(CHECK, there.join(", "))
}
