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
        let issued = self.lock().tokens.issue(token.clone(), bearer, now, expires);
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
