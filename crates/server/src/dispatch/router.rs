//! Requests to commands, through two doors: on the spot, or as a job.

use smb::Command;
use smb::Empty;
use smb::Header;
use smb::NtStatus;
use smb::crypto::Turn;

use super::asker::Asker;
use super::call::Call;
use super::frame::{self, FrameError, Outcome, Terms, malformed};
use super::prepared::Prepared;
use super::{
    asked, change_notify, close, create, flush, ioctl, lock, logoff, oplock_break, pipe,
    query_directory, query_info, read, set_info, tree, write,
};
use crate::connections::Channel;
use crate::connections::work::Working;
use crate::limits::ANSWER_UNCOUNTED_MAX;
use crate::service::Core;
use crate::state::Room;
use crate::state::reads::Rest;

/// What [`answer_now`] did.
#[derive(Debug)]
pub(crate) enum Now {
    /// The answer was appended; a long one has taken room.
    Answered(Option<Room>),
    /// The answer was appended but for its end; only where [`Asker::streams`].
    Begun(Rest, Option<Room>),
    /// Nothing was appended: the request has to become a job, which goes on where this has ended.
    Later(Turn, Option<Prepared>),
}

/// Answers a request on the spot if its command is on the data path and nothing has to wait.
pub(crate) fn answer_now(
    asker: Asker<'_>,
    turn: Turn,
    pdu: &[u8],
    out: &mut Vec<u8>,
) -> Result<Now, FrameError> {
    let header = asker.header;
    if !matches!(header.command, Command::READ | Command::WRITE | Command::FLUSH | Command::ECHO) {
        return Ok(Now::Later(turn, None));
    }
    // Whoever has no room for a long answer waits for it as a job.
    let asked = asked::bytes(header, pdu);
    let mut room = match asked > ANSWER_UNCOUNTED_MAX {
        true => match asker.try_room(asked) {
            None => return Ok(Now::Later(turn, None)),
            room => room,
        },
        false => None,
    };
    let start = frame::begin(out, asker.sealed);
    let at = frame::begin_pdu(out, header);
    let (mut rest, mut prepared) = (None, None);
    let work = begin_work(header, asker.channel);
    let attempt = match header.command {
        _ if work.is_err() => Some(Err(NtStatus::USER_SESSION_DELETED)),
        _ if is_expired(header, asker.channel, asker.core) => {
            Some(Err(NtStatus::NETWORK_SESSION_EXPIRED))
        }
        Command::READ => read::now(asker, pdu, out, (&mut rest, &mut room)),
        Command::WRITE => write::now(asker, pdu, out, &mut prepared),
        Command::FLUSH => flush::now(asker, pdu, out),
        Command::ECHO => Some(echo(pdu, out)),
        _ => None,
    };
    let Some(outcome) = attempt else {
        out.truncate(start);
        return Ok(Now::Later(turn, prepared));
    };
    let credits = asker.link.window().grant(header.credits);
    let terms = Terms { credits, session_id: header.session_id, route: None };
    frame::end_pdu(out, at, header, outcome, terms);
    if let Some(rest) = rest {
        frame::end_before(out, start, rest.left())?;
        return Ok(Now::Begun(rest, room));
    }
    frame::sign(&mut out[at..], turn, header, asker.channel, asker.sealed);
    frame::end(out, start, asker.sealed.then_some(&**asker.channel))?;
    Ok(Now::Answered(room.filter(|_| out.len() - start > ANSWER_UNCOUNTED_MAX)))
}

/// Answers a request that may take its time.
pub(crate) async fn dispatch(call: &mut Call, out: &mut Vec<u8>) -> Outcome {
    if is_expired(&call.header, &call.channel, &call.core) {
        return Err(NtStatus::NETWORK_SESSION_EXPIRED);
    }
    if is_of_a_tree(call.header.command) {
        call.asker().tree()?;
    }
    if pipe::is_meant(call) {
        return pipe::handle(call, out).await;
    }
    match call.header.command {
        Command::LOGOFF => logoff::handle(call, out).await,
        Command::TREE_CONNECT => tree::connect(call, out),
        Command::TREE_DISCONNECT => tree::disconnect(call, out).await,
        Command::CREATE => create::handle(call, out).await,
        Command::CLOSE => close::handle(call, out).await,
        Command::FLUSH => flush::handle(call, out).await,
        Command::READ => read::handle(call, out).await,
        Command::WRITE => write::handle(call, out).await,
        Command::LOCK => lock::handle(call, out).await,
        Command::IOCTL => ioctl::handle(call, out).await,
        Command::ECHO => echo(call.pdu(), out),
        Command::QUERY_DIRECTORY => query_directory::handle(call, out).await,
        Command::CHANGE_NOTIFY => change_notify::handle(call),
        Command::QUERY_INFO => query_info::handle(call, out).await,
        Command::SET_INFO => set_info::handle(call, out).await,
        Command::OPLOCK_BREAK => oplock_break::acknowledge(call, out).await,
        _ => Err(NtStatus::INVALID_PARAMETER),
    }
}

/// Answers a request that needs no session; ECHO is the only one.
pub(crate) fn without_session(header: &Header, pdu: &[u8], out: &mut Vec<u8>) -> Outcome {
    match header.command {
        Command::ECHO => echo(pdu, out),
        _ => Err(NtStatus::USER_SESSION_DELETED),
    }
}

// MS-SMB2 §3.3.5.2.11: which commands concern a tree connect. A lease is its client's, whichever tree its
// acknowledgement names; that of an oplock finds no open without the tree.
fn is_of_a_tree(command: Command) -> bool {
    let without = [Command::LOGOFF, Command::TREE_CONNECT, Command::ECHO, Command::OPLOCK_BREAK];
    !without.contains(&command)
}

// Counts a request among those that a session which takes the place of this one waits for. What
// changes nothing is not waited for.
pub(super) fn begin_work(header: &Header, channel: &Channel) -> Result<Option<Working>, NtStatus> {
    let changes = !matches!(
        header.command,
        Command::READ
            | Command::FLUSH
            | Command::ECHO
            | Command::QUERY_DIRECTORY
            | Command::QUERY_INFO
            | Command::CHANGE_NOTIFY
    );
    if !changes {
        return Ok(None);
    }
    channel.session.begin_work().map(Some).ok_or(NtStatus::USER_SESSION_DELETED)
}

// MS-SMB2 §3.3.5.2.9: whose ticket has ended may still give back what it has.
fn is_expired(header: &Header, channel: &Channel, core: &Core) -> bool {
    let goes_on = [Command::LOGOFF, Command::CLOSE, Command::LOCK, Command::ECHO];
    !goes_on.contains(&header.command) && channel.session.is_expired(&core.environment.clock)
}

fn echo(pdu: &[u8], out: &mut Vec<u8>) -> Outcome {
    Empty::parse(pdu).map_err(malformed)?;
    Empty.emit(out);
    Ok(NtStatus::SUCCESS)
}
