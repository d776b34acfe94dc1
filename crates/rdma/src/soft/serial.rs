//! The identity of a request, by which the result of a worker finds its request.
//!
//! Requests are answered in order, but workers finish them in the order in which they got them,
//! which is another: a read in transmission asks for its next bytes behind requests that came after
//! it. So a result names its request. The front of the queue is not always the request of the next
//! result.

/// Names one request of one half of a queue pair, as long as the queue pair exists.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) struct Serial(u64);

impl Serial {
    /// The serial of the first request.
    pub(super) const FIRST: Self = Self(0);

    /// Returns this serial; `self` is then the next.
    pub(super) fn draw(&mut self) -> Self {
        let drawn = *self;
        self.0 += 1;
        drawn
    }

    /// How many serials were drawn from `first` on before this one; `None` if this one is older.
    pub(super) fn since(self, first: Self) -> Option<usize> {
        usize::try_from(self.0.checked_sub(first.0)?).ok()
    }

    /// The part of the serial that fits an iWARP request; far fewer requests are open at once.
    pub(super) fn low(self) -> u32 {
        let [.., a, b, c, d] = self.0.to_be_bytes();
        u32::from_be_bytes([a, b, c, d])
    }
}
