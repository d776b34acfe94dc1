//! The identity of a request, by which what a worker has done for it finds it again.
//!
//! Requests are answered in order, but workers are done with them in the order in which they were
//! handed over, which is another: a read that streams asks for its next bytes behind requests that
//! came after it. So a result names its request. Whose turn it is says nothing of whose it is.

/// Names one request of one half of a queue pair, for the life of that.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) struct Serial(u64);

impl Serial {
    /// The first.
    pub(super) const FIRST: Self = Self(0);

    /// Draws one; `self` is then the next.
    pub(super) fn draw(&mut self) -> Self {
        let drawn = *self;
        self.0 += 1;
        drawn
    }

    /// How many were drawn from `first` on before this one; `None` if this one is older.
    pub(super) fn since(self, first: Self) -> Option<usize> {
        usize::try_from(self.0.checked_sub(first.0)?).ok()
    }

    /// What of it an iWARP request has room for; far fewer requests are open at once.
    pub(super) fn low(self) -> u32 {
        let [.., a, b, c, d] = self.0.to_be_bytes();
        u32::from_be_bytes([a, b, c, d])
    }
}
