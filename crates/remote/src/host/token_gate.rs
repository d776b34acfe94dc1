//! A gate for programs whose peers show a token and nothing else.
//!
//! ```text
//!   request     0                              32
//!               +-------------------------------+
//!               | token                         |
//!               +-------------------------------+
//!   acceptance  0               8
//!               +---------------+
//!               | connection    |  the number that names the connection to the control side, little-endian
//!               +---------------+
//!   rejection   no bytes, whatever the reason: a stranger learns nothing
//! ```
//!
//! The program's own messages carry the token to its peer, and the number back with the request to map.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use basics::{Environment, RandomError};
use thiserror::Error;
use tracing::debug;
use zeroize::Zeroize;

use super::gate::{Gate, Verdict};
use super::handle::PushConnection;
use super::request::Request;
use super::tokens::TokenTable;

/// See the module. `B` is the bearer: to whom a connection belongs, in the program's terms.
#[derive(Debug)]
pub struct TokenGate<B> {
    environment: Environment,
    lifetime: Duration,
    connections_max: usize,
    state: Mutex<State<B>>,
}

#[derive(Debug)]
struct State<B> {
    tokens: TokenTable<Token, B>,
    bearers: HashMap<PushConnection, B>,
}

impl<B: Clone + fmt::Debug + Send> TokenGate<B> {
    /// A gate that admits at most `connections_max` connections at a time, each by a token that is valid for
    /// `lifetime`. At most as many tokens are outstanding.
    pub fn new(environment: &Environment, lifetime: Duration, connections_max: usize) -> Self {
        let (tokens, bearers) = (TokenTable::new(connections_max), HashMap::new());
        let state = Mutex::new(State { tokens, bearers });
        Self { environment: environment.clone(), lifetime, connections_max, state }
    }

    /// Issues a token for one connection of `bearer`. The token is a secret: whoever shows it first is taken for the
    /// bearer.
    ///
    /// # Errors
    /// Too many tokens are outstanding, or the host has no random numbers.
    pub fn issue(&self, bearer: B) -> Result<Token, TokenError> {
        let mut bytes = [0; Token::LEN];
        self.environment.random.fill(&mut bytes)?;
        let (token, now) = (Token(bytes), self.now());
        let expires = now + self.lifetime;
        let issued = self.lock().tokens.issue(vec![token.clone()], bearer, now, expires);
        if issued { Ok(token) } else { Err(TokenError::Outstanding { max: self.connections_max }) }
    }

    /// Voids the unused tokens of some bearers. Their connections stay: see
    /// [`HostHandle::disconnect`](super::HostHandle::disconnect).
    pub fn void(&self, is_void: impl Fn(&B) -> bool) {
        self.lock().tokens.revoke(is_void);
    }

    /// To whom a connection belongs, while it lasts.
    pub fn bearer(&self, connection: PushConnection) -> Option<B> {
        self.lock().bearers.get(&connection).cloned()
    }

    fn now(&self) -> Instant {
        self.environment.clock.now()
    }

    fn lock(&self) -> MutexGuard<'_, State<B>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<B: Clone + fmt::Debug + Send> Gate for TokenGate<B> {
    fn admit(&self, request: &Request, connection: PushConnection) -> Verdict {
        let refused = Verdict::Refuse(Vec::new());
        let Ok(bytes) = request.private_data.as_slice().try_into() else { return refused };
        let (token, now) = (Token(bytes), self.now());
        let mut state = self.lock();
        // Looked at before the token is spent: the token stays valid for another attempt.
        if state.bearers.len() >= self.connections_max {
            return refused;
        }
        let Some(bearer) = state.tokens.spend(&token, now) else { return refused };
        debug!(%connection, ?bearer, "token spent");
        state.bearers.insert(connection, bearer);
        Verdict::Admit(connection.to_bytes().to_vec())
    }

    fn gone(&self, connection: PushConnection) {
        self.lock().bearers.remove(&connection);
    }
}

/// A bearer secret, good once. Does not print; compares in constant time.
#[derive(Clone)]
pub struct Token([u8; TOKEN_LEN]);

impl Token {
    /// Length in bytes.
    pub const LEN: usize = TOKEN_LEN;

    /// The private data of the bearer's connection request.
    pub fn expose(&self) -> &[u8; Self::LEN] {
        &self.0
    }
}

impl PartialEq for Token {
    fn eq(&self, other: &Self) -> bool {
        let difference = self.0.iter().zip(&other.0).fold(0, |sum, (a, b)| sum | (a ^ b));
        std::hint::black_box(difference) == 0
    }
}

impl Eq for Token {}

impl Drop for Token {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(..)")
    }
}

/// Why no token was issued.
#[derive(Clone, Debug, Error)]
#[non_exhaustive]
pub enum TokenError {
    /// As many tokens are outstanding as there may be connections.
    #[error("{max} tokens are outstanding, and no more are allowed")]
    Outstanding {
        /// The limit.
        max: usize,
    },
    /// The host has no random numbers.
    #[error("no random numbers: {0}")]
    HostRandom(#[from] RandomError),
}

/// Nobody guesses 256 random bits.
const TOKEN_LEN: usize = 32;

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::SystemTime;

    use basics::{Clock, ManualClock};
    use rdma::ConnectionId;

    use super::*;

    const LIFETIME: Duration = Duration::from_secs(30);

    fn shown(private_data: &[u8]) -> Request {
        let address = "127.0.0.1:1".parse().unwrap();
        Request {
            id: ConnectionId { index: 0, generation: 0 },
            peer: address,
            local: address,
            private_data: private_data.to_vec(),
            is_same_host: false,
        }
    }

    fn is_admitted(gate: &TokenGate<u8>, private_data: &[u8], number: u64) -> bool {
        let verdict = gate.admit(&shown(private_data), PushConnection(number));
        match verdict {
            Verdict::Admit(answer) => {
                assert_eq!(PushConnection::from_bytes(answer.try_into().unwrap()).0, number);
                true
            }
            Verdict::Refuse(answer) => {
                assert_eq!(answer, [0; 0], "a stranger learns nothing");
                false
            }
            Verdict::NotPush => panic!("every peer asks for a push connection"),
        }
    }

    #[test]
    fn a_token_admits_its_bearer_once() {
        let gate = TokenGate::new(&Environment::host(), LIFETIME, 8);
        let token = gate.issue(7).unwrap();
        assert!(!is_admitted(&gate, &[0; 32], 1));
        assert!(!is_admitted(&gate, &[], 1));
        assert!(is_admitted(&gate, token.expose(), 1));
        assert!(!is_admitted(&gate, token.expose(), 2));
        assert_eq!(
            (gate.bearer(PushConnection(1)), gate.bearer(PushConnection(2))),
            (Some(7), None)
        );
        gate.gone(PushConnection(1));
        assert_eq!(gate.bearer(PushConnection(1)), None);
    }

    #[test]
    fn an_expired_or_void_token_admits_nobody() {
        let clock = Arc::new(ManualClock::at(SystemTime::UNIX_EPOCH));
        let given = Clock::given(Arc::clone(&clock) as _);
        let environment = Environment { clock: given, ..Environment::host() };
        let gate = TokenGate::new(&environment, LIFETIME, 8);
        let (expired, void) = (gate.issue(1).unwrap(), gate.issue(2).unwrap());
        gate.void(|bearer| *bearer == 2);
        assert!(!is_admitted(&gate, void.expose(), 1));
        clock.advance(LIFETIME);
        assert!(!is_admitted(&gate, expired.expose(), 1));
        let fresh = gate.issue(1).unwrap();
        assert!(is_admitted(&gate, fresh.expose(), 1));
    }

    #[test]
    fn a_full_gate_spends_no_token_and_issues_no_more() {
        let gate = TokenGate::new(&Environment::host(), LIFETIME, 2);
        let tokens = [gate.issue(1).unwrap(), gate.issue(1).unwrap()];
        assert!(matches!(gate.issue(1), Err(TokenError::Outstanding { max: 2 })));
        for (number, token) in (1..).zip(&tokens) {
            assert!(is_admitted(&gate, token.expose(), number));
        }
        let waiting = gate.issue(1).unwrap();
        assert!(!is_admitted(&gate, waiting.expose(), 3));
        gate.gone(PushConnection(1));
        assert!(is_admitted(&gate, waiting.expose(), 3));
    }

    #[test]
    fn tokens_that_differ_in_any_bytes_are_not_equal() {
        let token = Token([0x5a; TOKEN_LEN]);
        assert_eq!(token, token.clone());
        for (first, second) in [(0, 1), (0, TOKEN_LEN - 1), (7, 20)] {
            let mut other = token.clone();
            // The same bit of two bytes.
            other.0[first] ^= 4;
            other.0[second] ^= 4;
            assert_ne!(token, other, "bytes {first} and {second}");
        }
    }
}
