//! Sets how the host probes a silent peer, and when the host ends the connection.
//!
//! ```text
//!   last byte heard                 half of the time          all of it
//!   ----------------- silence ------------+---+---+---+---+---+----> ended: ETIMEDOUT
//!                                         probes, each answered by any machine that lives
//!   bytes sent and never acknowledged, or a window that stays shut --> ended as well
//! ```
//!
//! A peer whose machine lost its power, or its network, sends nothing more; without probes its connection
//! stays open, and the engine keeps all that the peer held. The kernel of the peer answers probes: a
//! program that is stopped or busy counts as alive as long as it leaves no bytes unread for the whole
//! time.
//!
//! Spec: RFC 9293 §3.8.4 (keep-alives), RFC 5482 and tcp(7) (`TCP_USER_TIMEOUT`).

use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

use rustix::net::sockopt;

/// Ends the connection of `socket` when its peer has given no sign of life for `silence_max`. `None` leaves
/// the setting of the host, which is most often never. Times count in whole seconds.
///
/// # Errors
/// The host refuses; the connection then is as it was, or partly so.
pub fn watch_peer(socket: impl AsFd, silence_max: Option<Duration>) -> io::Result<()> {
    let Some(silence_max) = silence_max else { return Ok(()) };
    let socket = socket.as_fd();
    let seconds = |part: u32| Duration::from_secs((silence_max / part).as_secs().max(1));
    sockopt::set_tcp_keepidle(socket, seconds(2).min(KEEPIDLE_MAX))?;
    sockopt::set_tcp_keepintvl(socket, seconds(2 * PROBES).min(KEEPIDLE_MAX))?;
    sockopt::set_tcp_keepcnt(socket, PROBES)?;
    // Probes find a dead peer while nothing is under way; this option covers bytes that were sent
    // and not acknowledged.
    let user_timeout = u32::try_from(silence_max.as_millis()).unwrap_or(u32::MAX);
    sockopt::set_tcp_user_timeout(socket, user_timeout.min(USER_TIMEOUT_MAX))?;
    Ok(sockopt::set_socket_keepalive(socket, true)?)
}

/// Probes in the second half of the silence: the loss of a single probe ends nothing.
const PROBES: u32 = 6;
/// The longest time that Linux accepts, `MAX_TCP_KEEPIDLE`.
const KEEPIDLE_MAX: Duration = Duration::from_secs(32_767);
/// In milliseconds; Linux stores the time in a signed integer.
const USER_TIMEOUT_MAX: u32 = i32::MAX.unsigned_abs();

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    fn connection() -> (TcpListener, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (listener, stream)
    }

    #[test]
    fn probes_fill_the_second_half_of_the_silence() {
        let (_listener, stream) = connection();
        watch_peer(&stream, Some(Duration::from_secs(120))).unwrap();
        assert!(sockopt::socket_keepalive(&stream).unwrap());
        assert_eq!(sockopt::tcp_keepidle(&stream), Ok(Duration::from_secs(60)));
        assert_eq!(sockopt::tcp_keepintvl(&stream), Ok(Duration::from_secs(10)));
        assert_eq!(sockopt::tcp_keepcnt(&stream), Ok(6));
        assert_eq!(sockopt::tcp_user_timeout(&stream), Ok(120_000));
    }

    #[test]
    fn the_host_accepts_the_shortest_and_the_longest_silence() {
        for silence in [Duration::from_millis(1), Duration::from_secs(u64::from(u32::MAX))] {
            let (_listener, stream) = connection();
            watch_peer(&stream, Some(silence)).unwrap();
            assert!(sockopt::socket_keepalive(&stream).unwrap());
        }
    }

    #[test]
    fn without_a_bound_the_setting_of_the_host_stays() {
        let (_listener, stream) = connection();
        watch_peer(&stream, None).unwrap();
        assert!(!sockopt::socket_keepalive(&stream).unwrap());
    }
}
