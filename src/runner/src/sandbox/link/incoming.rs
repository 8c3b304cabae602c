//! What a connection does with the frames that come in, and which of them break a rule.

use protocol::{Frame, FromSandbox, ToSandbox};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::connection::Connection;
use super::slot::{Answer, Item, Shape, Slot};
use crate::crash;

/// Most credit that one call may hold; more is an attempt to overflow.
const MAX_CREDIT: u64 = 1 << 32;

impl Connection {
    /// Handles one frame; the error says which rule it broke.
    pub(super) async fn dispatch(&self, frame: Frame<FromSandbox>) -> Result<(), String> {
        crash::point("link.received");
        let Frame { header, payload } = frame;
        if !payload.is_empty() && !matches!(header, FromSandbox::Chunk { .. } | FromSandbox::Done(_)) {
            return Err("a payload where none belongs".to_owned());
        }
        match header {
            FromSandbox::Done(done) => {
                let mut table = self.lock();
                let Some(slot) = table.calls.remove(&done.id) else {
                    return Err(format!("an end for call {}, which is not running", done.id));
                };
                if !slot.shape.allows(&done.outcome, payload.len()) {
                    return Err(format!("an answer that does not fit a call of the form {:?}", slot.shape));
                }
                table.last_done = Instant::now();
                let abandoned = slot.answer.send(Answer::Done { outcome: done.outcome, payload }).is_err();
                if abandoned {
                    table.post(&self.write, &ToSandbox::Forget { key: slot.key });
                    self.flush_later(&table);
                }
                drop(table);
                self.changed.notify_waiters();
            }
            FromSandbox::Chunk { id } => {
                let length = payload.len() as u64;
                let stream = self.stream_of(id, |slot| match slot.window.checked_sub(length) {
                    Some(left) if length > 0 => {
                        slot.window = left;
                        Ok(())
                    }
                    _ => Err(format!("a chunk of {length} bytes with a credit of {}", slot.window)),
                })?;
                deliver(&stream, Item::Chunk(payload)).await;
            }
            FromSandbox::Entry { id, entry } => {
                let stream = self.stream_of(id, |slot| match slot.shape {
                    Shape::Get => Ok(()),
                    other => Err(format!("an entry for a call of the form {other:?}")),
                })?;
                deliver(&stream, Item::Entry(entry)).await;
            }
            FromSandbox::Credit { id, bytes } => {
                let mut table = self.lock();
                let Some(slot) = table.calls.get_mut(&id) else {
                    return Err(format!("credit for call {id}, which is not running"));
                };
                slot.credit += u64::from(bytes);
                if bytes == 0 || slot.credit > MAX_CREDIT {
                    return Err(format!("{bytes} bytes of credit on top of {}", slot.credit - u64::from(bytes)));
                }
                drop(table);
                self.changed.notify_waiters();
            }
            FromSandbox::Pong { nonce } => {
                let Some(pong) = self.lock().pings.remove(&nonce) else {
                    return Err("a pong without a ping".to_owned());
                };
                let _ = pong.send(());
                self.changed.notify_waiters();
            }
            FromSandbox::Hello(_) | FromSandbox::Ready { .. } => {
                return Err("a handshake message after the handshake".to_owned());
            }
        }
        Ok(())
    }

    /// The stream of a call, when `check` allows another item on it.
    fn stream_of(
        &self,
        id: u64,
        check: impl FnOnce(&mut Slot) -> Result<(), String>,
    ) -> Result<mpsc::Sender<Item>, String> {
        let mut table = self.lock();
        let Some(slot) = table.calls.get_mut(&id) else {
            return Err(format!("a part of call {id}, which is not running"));
        };
        check(slot)?;
        slot.stream.clone().ok_or_else(|| format!("a stream for a call of the form {:?}", slot.shape))
    }
}

/// Hands an item to its reader, waiting for a place; the connection is not read meanwhile, which stops the sender.
async fn deliver(stream: &mpsc::Sender<Item>, item: Item) {
    // A reader that is gone has cancelled the call; what still comes is dropped.
    let _ = stream.send(item).await;
}
