//! What the host says on the control connection, and what it is answered. A host that breaks a rule is not talked to
//! again: the connection is dropped, the commands run on.

use std::ffi::CString;
use std::time::{Duration, Instant};

use nix::sys::epoll::{EpollEvent, EpollFlags};
use protocol::{
    Call, CallState, Cause, Done, Frame, FromSandbox, Hello, Ids, Known, Outcome, Request, Role, ToSandbox, Unfinished,
    Welcome,
};

use super::command::{Command, Phase, Waiting};
use super::kept;
use super::link::{Link, dial};
use super::prepare;
use super::spawn::MOST;
use super::state::{Live, Pid1, Source};
use crate::session::Session;

/// What the host did that it must not do.
pub(super) type Breach = String;

/// Longest timeout that is told apart from none.
const LONGEST: Duration = Duration::from_hours(240);

impl Pid1 {
    /// Tries to reach the host and greets it. A failure is no event: the next tick tries again.
    pub(super) fn connect(&mut self) {
        let socket = match dial() {
            Ok(socket) => socket,
            Err(error) => {
                say!("cannot reach the host: {error}");
                return;
            }
        };
        let mut link = Link::new(socket);
        if self.poll.add(&link, EpollEvent::new(EpollFlags::EPOLLIN, Source::Link.number())).is_err() {
            return;
        }
        link.send(&FromSandbox::Hello(Box::new(hello(Role::Control(Box::new(self.facts.clone()))))), b"");
        self.link = Some(link);
    }

    /// Drops the connection. Commands run on; what can only go on with this host ends.
    pub(super) fn lose_link(&mut self, why: &str) {
        let Some(link) = self.link.take() else { return };
        say!("link lost: {why}");
        let _ = self.poll.delete(&link);
        for slot in &mut self.commands {
            // The rest of a text that was cut off never comes.
            if slot.as_ref().is_some_and(|command| matches!(command.phase, Phase::Body(_))) {
                *slot = None;
            }
        }
        for command in self.commands.iter_mut().flatten() {
            command.waiting().for_each(|waiting| waiting.id = None);
        }
        self.end_servers();
    }

    /// Takes one frame.
    pub(super) fn on_frame(&mut self, frame: Frame<ToSandbox>) -> Result<(), Breach> {
        let Some(link) = &mut self.link else { return Ok(()) };
        let known = |id: u64| if id <= link.last_id { Ok(()) } else { Err(format!("call {id} was never made")) };
        if link.welcomed == matches!(frame.header, ToSandbox::Welcome(_)) {
            return Err("the welcome comes first and comes once".to_owned());
        }
        match frame.header {
            ToSandbox::Welcome(welcome) => self.on_welcome(&welcome),
            ToSandbox::Call(call) => self.on_call(call, &frame.payload),
            ToSandbox::Chunk { id } => {
                known(id)?;
                self.on_chunk(id, &frame.payload)
            }
            // Nothing is streamed to the host here, so its credit is not needed.
            ToSandbox::Credit { id, .. } => known(id),
            ToSandbox::Cancel { id } => {
                self.cancel(id);
                Ok(())
            }
            ToSandbox::Forget { key } => {
                self.kept.forget(&key);
                Ok(())
            }
            ToSandbox::Ping { nonce } => {
                link.send(&FromSandbox::Pong { nonce }, b"");
                Ok(())
            }
            ToSandbox::Entry { .. } | ToSandbox::EndOfEntries { .. } => {
                Err("entries do not belong on the control connection".to_owned())
            }
        }
    }

    fn on_welcome(&mut self, welcome: &Welcome) -> Result<(), Breach> {
        check_welcome(welcome)?;
        let ids = welcome.ids;
        let first = match &self.live {
            Some(live) if live.session.ids != ids => return Err("the ids of a session never change".to_owned()),
            live => live.is_none(),
        };
        let text = |text: String| CString::new(text).map_err(|_| "a NUL byte in the welcome".to_owned());
        let session = Session::from(welcome);
        let variables = session.environment.iter().map(|(name, value)| text(format!("{name}={value}")));
        let live = Live {
            environment: variables.collect::<Result<_, _>>()?,
            directory: text(welcome.directory.clone())?,
            session,
            orphan_grace: welcome.orphan_grace,
        };
        if first {
            let slots = usize::try_from(ids.tags).unwrap_or(MOST).min(MOST);
            self.commands.resize_with(slots, || None);
            if let Err(error) = prepare::run(&live.session, self.spawner.ruleset()) {
                say!("cannot prepare /tmp: {error}");
                self.exit = Some(70);
                return Ok(());
            }
        }
        self.live = Some(live);
        self.alone_for = 0;
        // A worker of an earlier host serves nobody any more. Before the answer, so that files can be read at once.
        self.replace_worker();
        self.resume(&welcome.unfinished)
    }

    /// Answers for each call of an earlier connection: finished (its result follows), running or unknown.
    fn resume(&mut self, unfinished: &[Unfinished]) -> Result<(), Breach> {
        let mut known = Vec::new();
        let mut finished = Vec::new();
        let mut last_id = 0;
        for Unfinished { key, id } in unfinished {
            if *id <= last_id {
                return Err(format!("unfinished call {id} does not follow {last_id}"));
            }
            last_id = *id;
            let state = if let Some(waiting) = self.waiting_for(key) {
                waiting.id = Some(*id);
                CallState::Running
            } else if let Some(result) = self.kept.find(key) {
                finished.push((*id, result.clone()));
                CallState::Finished
            } else {
                CallState::Unknown
            };
            known.push(Known { key: key.clone(), state });
        }
        if let Some(link) = &mut self.link {
            link.welcomed = true;
            link.last_id = last_id;
            link.send(&FromSandbox::Ready { known }, b"");
            for (id, result) in finished {
                link.send(&FromSandbox::Done(Box::new(Done { id, outcome: result.outcome })), &result.payload);
            }
        }
        Ok(())
    }

    fn waiting_for(&mut self, key: &str) -> Option<&mut Waiting> {
        self.commands.iter_mut().flatten().flat_map(Command::waiting).find(|waiting| waiting.key == key)
    }

    fn on_call(&mut self, call: Call, payload: &[u8]) -> Result<(), Breach> {
        let Call { id, key, timeout_ms, body, request } = call;
        let Some(link) = &mut self.link else { return Ok(()) };
        if id <= link.last_id {
            return Err(format!("call {id} does not follow {}", link.last_id));
        }
        link.last_id = id;
        if key.len() > protocol::MAX_KEY {
            return Err(format!("a key of {} bytes", key.len()));
        }
        if body > protocol::MAX_BODY || payload.len() as u64 > body {
            return Err(format!("a body of {body} bytes, {} of them at once", payload.len()));
        }
        if body > 0 && !matches!(request, Request::Bash { .. }) {
            return Err("a body for a call that has none".to_owned());
        }
        if self.waiting_for(&key).is_some() {
            let message = format!("call {key} is running already");
            self.answer(&Waiting { id: Some(id), key }, failed(Cause::Invalid, message), &[]);
            return Ok(());
        }
        if let Some(result) = self.kept.find(&key) {
            // Asked twice, done once.
            let kept::Result { outcome, payload, .. } = result.clone();
            self.answer(&Waiting { id: Some(id), key }, outcome, &payload);
            return Ok(());
        }
        let call = Waiting { id: Some(id), key };
        match request {
            Request::Bash { background } => {
                let timeout = Duration::from_millis(timeout_ms).min(LONGEST);
                self.begin(call, background, body, payload, Instant::now() + timeout);
            }
            Request::StopJob { job } => self.stop_job(call, &job),
            Request::OpenFiles { label } => self.open_files(&call, label),
            Request::CloseFiles { label } => self.close_files(call, label),
            Request::Read { .. }
            | Request::Write { .. }
            | Request::Edit { .. }
            | Request::Ls { .. }
            | Request::Grep { .. }
            | Request::Find { .. }
            | Request::Put { .. }
            | Request::Get { .. } => return Err("file calls do not belong on the control connection".to_owned()),
        }
        Ok(())
    }

    fn on_chunk(&mut self, id: u64, chunk: &[u8]) -> Result<(), Breach> {
        let slot = self.commands.iter().position(|slot| {
            slot.as_ref().and_then(|command| command.call.as_ref()).is_some_and(|call| call.id == Some(id))
        });
        let Some(slot) = slot else {
            // It failed while this chunk was on its way.
            return Ok(());
        };
        match self.commands[slot].as_ref().map(|command| &command.phase) {
            Some(Phase::Body(body)) if body.may_take(chunk) => {
                self.append(slot, chunk, true);
                Ok(())
            }
            _ => Err(format!("a chunk of {} bytes that call {id} does not expect", chunk.len())),
        }
    }

    /// Sends the end of a call, if the host is there to hear it.
    pub(super) fn answer(&mut self, call: &Waiting, outcome: Outcome, payload: &[u8]) {
        if let (Some(link), Some(id)) = (&mut self.link, call.id) {
            link.send(&FromSandbox::Done(Box::new(Done { id, outcome })), payload);
        }
    }

    /// Sends the end of a call that had an effect, and keeps it in case the host comes back and asks.
    pub(super) fn answer_and_keep(&mut self, call: Waiting, outcome: Outcome, payload: Vec<u8>) {
        self.answer(&call, outcome.clone(), &payload);
        self.kept.keep(kept::Result { key: call.key, outcome, payload });
    }
}

/// PID 1's first frame on a connection.
pub(super) fn hello(role: Role) -> Hello {
    Hello { version: protocol::VERSION, oldest: protocol::OLDEST, role }
}

/// A call that could not be done.
pub(super) fn failed(cause: Cause, message: impl Into<String>) -> Outcome {
    Outcome::Failed { cause, message: message.into() }
}

fn check_welcome(welcome: &Welcome) -> Result<(), Breach> {
    if !(protocol::OLDEST..=protocol::VERSION).contains(&welcome.version) {
        return Err(format!("the host speaks protocol version {}", welcome.version));
    }
    if welcome.unfinished.len() > protocol::MAX_CALLS {
        return Err(format!("{} unfinished calls", welcome.unfinished.len()));
    }
    let Ids { agent, worker, first_tag, tags } = welcome.ids;
    let last_tag = first_tag.checked_add(tags);
    // None may be root's or another's, and -1 means "leave as it is" to the kernel.
    let distinct = agent != worker
        && last_tag.is_some_and(|end| !(first_tag..end).contains(&agent) && !(first_tag..end).contains(&worker));
    if agent == 0 || worker == 0 || first_tag == 0 || tags == 0 || agent == u32::MAX || worker == u32::MAX || !distinct
    {
        return Err(format!("ids that cannot be: {:?}", welcome.ids));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn welcome(agent: u32, worker: u32, first_tag: u32, tags: u32) -> Welcome {
        Welcome {
            version: protocol::VERSION,
            ids: Ids { agent, worker, first_tag, tags },
            environment: Vec::new(),
            directory: "/".to_owned(),
            orphan_grace: 30,
            unfinished: Vec::new(),
        }
    }

    #[test]
    fn only_ids_that_keep_everybody_apart_are_taken() {
        assert!(check_welcome(&welcome(64, 65, 66, 62)).is_ok());
        for (agent, worker, first_tag, tags) in [
            (0, 65, 66, 62),
            (64, 0, 66, 62),
            (64, 64, 66, 62),
            (64, 65, 0, 62),
            (64, 65, 66, 0),
            (64, 65, 64, 62),
            (64, 65, 10, 62),
            (u32::MAX, 65, 66, 62),
            (64, 65, u32::MAX, 62),
        ] {
            assert!(check_welcome(&welcome(agent, worker, first_tag, tags)).is_err(), "{agent} {worker} {first_tag}");
        }
    }

    #[test]
    fn a_version_outside_the_window_is_refused() {
        let mut unknown = welcome(64, 65, 66, 62);
        unknown.version = protocol::VERSION + 1;
        assert!(check_welcome(&unknown).is_err());
    }
}
