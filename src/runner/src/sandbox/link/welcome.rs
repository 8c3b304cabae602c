//! How a connection becomes part of the link, and what happens when it ends.

use std::collections::HashMap;
use std::sync::Arc;

use protocol::{CallState, Facts, FromSandbox, Known, Role, ToSandbox, Unfinished, Welcome};
use tokio::net::UnixStream;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, sleep, timeout};
use tracing::{debug, warn};

use super::Shared;
use super::connection::{Connection, Reader};
use super::handshake::{End, Framed, negotiate};
use super::slot::Answer;
use crate::sandbox::call::{Gone, GoneKind};
use crate::sandbox::facts;
use crate::sandbox::terms::Terms;

impl Shared {
    /// Shakes hands with a new connection of PID 1 and serves it until its end.
    pub(super) async fn welcome(self: Arc<Self>, stream: UnixStream, place: OwnedSemaphorePermit) {
        let mut framed = Framed::new(stream);
        match self.greet(&mut framed).await {
            Err(End::Violation(rule)) => self.violated(&rule),
            Err(end) => debug!(?end, "a connection ended before it said hello"),
            Ok((version, Role::Control(facts))) => self.serve_control(framed, version, *facts, place).await,
            Ok((version, Role::Files { label })) => self.serve_files(framed, version, label, place).await,
        }
    }

    async fn greet(&self, framed: &mut Framed) -> Result<(u16, Role), End> {
        match timeout(self.timing.hello, framed.receive()).await.unwrap_or(Err(End::Dropped))? {
            FromSandbox::Hello(hello) => {
                let version = negotiate(&hello).map_err(End::Violation)?;
                Ok((version, hello.role))
            }
            _ => Err(End::Violation("its first message is not a hello".to_owned())),
        }
    }

    fn terms(&self) -> &Terms {
        self.terms.get().expect("connections are held until the terms are known")
    }

    /// Sends the welcome and waits for the answer to it.
    async fn agree(&self, framed: &mut Framed, version: u16, unfinished: &[Unfinished]) -> Result<Vec<Known>, End> {
        let terms = self.terms().clone();
        let welcome = ToSandbox::Welcome(Box::new(Welcome {
            version,
            ids: terms.ids,
            environment: terms.environment,
            directory: terms.directory,
            orphan_grace: terms.orphan_grace,
            unfinished: unfinished.to_vec(),
        }));
        let exchange = async {
            framed.send(&welcome).await?;
            framed.receive().await
        };
        match timeout(self.timing.hello, exchange).await.unwrap_or(Err(End::Dropped))? {
            FromSandbox::Ready { known } if known.iter().map(|k| &k.key).eq(unfinished.iter().map(|u| &u.key)) => {
                Ok(known)
            }
            FromSandbox::Ready { .. } => Err(End::Violation("its ready lists other calls than the welcome".to_owned())),
            _ => Err(End::Violation("its answer to the welcome is not ready".to_owned())),
        }
    }

    async fn serve_control(
        self: Arc<Self>,
        mut framed: Framed,
        version: u16,
        facts: Facts,
        place: OwnedSemaphorePermit,
    ) {
        if let Err(message) = facts::check(&facts, self.terms().gid) {
            return self.end(Gone::new(GoneKind::Facts, message));
        }
        let (handshake, unfinished) = self.begin_control();
        let known = match self.agree(&mut framed, version, &unfinished).await {
            Ok(known) => known,
            Err(End::Violation(rule)) => return self.violated(&rule),
            Err(end) => return debug!(?end, "a control connection ended in its handshake"),
        };
        let Some((connection, reader)) = self.finish_control(framed, handshake, &known, facts) else { return };
        drop(place);
        let end = connection.run(reader, self.timing.frame).await;
        self.control_ended(&connection, &end);
    }

    /// Takes the place of the control connection there was, whose calls now wait, and numbers all that wait.
    fn begin_control(self: &Arc<Self>) -> (u64, Vec<Unfinished>) {
        let mut state = self.lock();
        let old = state.control.take();
        if let Some(old) = &old {
            state.orphans.extend(old.close());
        }
        state.handshakes += 1;
        let unfinished =
            state.orphans.iter().zip(1..).map(|(slot, id)| Unfinished { key: slot.key.clone(), id }).collect();
        let handshake = state.handshakes;
        drop(state);
        if old.is_some() {
            self.lost_since(Instant::now());
        }
        (handshake, unfinished)
    }

    /// Makes the connection the control connection with the calls that go on; none when a newer one has begun.
    fn finish_control(
        &self,
        framed: Framed,
        handshake: u64,
        known: &[Known],
        facts: Facts,
    ) -> Option<(Arc<Connection>, Reader)> {
        let mut state = self.lock();
        if state.handshakes != handshake || self.check_gone().is_err() {
            return None;
        }
        let mut calls = HashMap::new();
        for ((mut slot, known), id) in std::mem::take(&mut state.orphans).into_iter().zip(known).zip(1..) {
            if known.state == CallState::Unknown {
                let _ = slot.answer.send(Answer::Unknown);
            } else {
                // It was sent whole on an earlier connection.
                slot.body_end = Some(0);
                calls.insert(id, slot);
            }
        }
        let (connection, reader) = Connection::new(framed, calls, known.len() as u64);
        let connection = Arc::new(connection);
        for key in &state.forgotten {
            connection.forget(key);
        }
        connection.repeat_cancels();
        state.facts = Some(facts);
        state.lost = None;
        state.control = Some(Arc::clone(&connection));
        drop(state);
        self.notify();
        Some((connection, reader))
    }

    fn control_ended(self: &Arc<Self>, connection: &Arc<Connection>, end: &End) {
        if let End::Violation(rule) = end {
            self.violated(rule);
        }
        {
            let mut state = self.lock();
            if !state.control.as_ref().is_some_and(|current| Arc::ptr_eq(current, connection)) {
                return;
            }
            state.control = None;
            state.orphans.extend(connection.close());
        }
        debug!(?end, "the control connection of a sandbox ended");
        self.lost_since(Instant::now());
    }

    /// Notes that there is no control connection, and ends the link if there is none for too long.
    pub(super) fn lost_since(self: &Arc<Self>, lost: Instant) {
        self.lock().lost = Some(lost);
        let shared = Arc::downgrade(self);
        let patience = self.timing.reconnect;
        tokio::spawn(async move {
            sleep(patience).await;
            let Some(shared) = shared.upgrade() else { return };
            if shared.lock().lost == Some(lost) {
                shared.end(Gone::new(GoneKind::Lost, format!("it did not connect again within {patience:?}")));
            }
        });
    }

    async fn serve_files(self: Arc<Self>, mut framed: Framed, version: u16, label: u64, place: OwnedSemaphorePermit) {
        {
            let state = self.lock();
            if label > state.last_label && !state.resumed {
                drop(state);
                return self.violated(&format!("a file server of label {label}, which was not ordered"));
            }
            if label != 0 && !matches!(state.files.get(&label), Some(None)) {
                return debug!(label, "a file server came when nobody waited for it any more");
            }
        }
        match self.agree(&mut framed, version, &[]).await {
            Ok(_) => {}
            Err(End::Violation(rule)) => return self.violated(&rule),
            Err(end) => return debug!(?end, label, "a file server ended in its handshake"),
        }
        let (connection, reader) = Connection::new(framed, HashMap::new(), 0);
        let connection = Arc::new(connection);
        {
            let mut state = self.lock();
            if self.check_gone().is_err() {
                return;
            }
            let old = if label == 0 {
                state.worker.replace(Arc::clone(&connection))
            } else if let Some(place) = state.files.get_mut(&label) {
                place.replace(Arc::clone(&connection))
            } else {
                return;
            };
            drop(state);
            old.map(|old| old.close());
        }
        drop(place);
        self.notify();
        let end = connection.run(reader, self.timing.frame).await;
        let begun = connection.close();
        let was_worker = {
            let mut state = self.lock();
            let current = state.worker.as_ref().is_some_and(|worker| Arc::ptr_eq(worker, &connection));
            if current {
                state.worker = None;
            }
            current
        };
        // Their callers hear that nobody will answer, and ask another file server.
        drop(begun);
        self.notify();
        match end {
            End::Violation(rule) => self.violated(&rule),
            End::Dropped if was_worker => {
                warn!("the resident file worker of a sandbox ended");
                self.want_worker();
            }
            _ => debug!(?end, label, "a file server ended"),
        }
    }
}
