//! Ctrl-C: the first asks the session to end and clean up, the second ends this process at once.

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::exit;

/// A token that the first SIGINT, SIGTERM or SIGHUP cancels.
pub(super) fn interrupt() -> CancellationToken {
    interrupt_or("what is left of the session is removed by the next runner command that drives sessions")
}

/// As [`interrupt`]; `left` is what the second signal's last words say of what it leaves.
pub(super) fn interrupt_or(left: &'static str) -> CancellationToken {
    let token = CancellationToken::new();
    let kinds = [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()];
    for mut signals in kinds.into_iter().filter_map(|kind| signal(kind).ok()) {
        let token = token.clone();
        tokio::spawn(async move { watch(&mut signals, &token, left).await });
    }
    token
}

async fn watch(signals: &mut Signal, token: &CancellationToken, left: &str) {
    while signals.recv().await.is_some() {
        if token.is_cancelled() {
            eprintln!("killed: {left}");
            std::process::exit(exit::INTERRUPTED.into());
        }
        token.cancel();
    }
}
