//! Queues of frames from whose middle a frame leaves in one step.
//!
//! The links of all frames are one array, so a queue is no more than its ends. Frames leave from the middle when a file
//! retires, when the kernel is to change a range of a file, and when a page could not be read: a search for them would keep
//! the lock of the cache for as long as the budget is large.

use crate::header::NONE;

/// The neighbours of every frame. A frame is in one queue at most.
#[derive(Debug)]
pub(crate) struct Links(Box<[Link]>);

#[derive(Clone, Copy, Debug)]
struct Link {
    before: u32,
    after: u32,
}

impl Links {
    pub(crate) fn new(frames: u32) -> Self {
        let frames = usize::try_from(frames).expect("32 bits fit an address");
        Self(vec![Link { before: NONE, after: NONE }; frames].into_boxed_slice())
    }

    fn of(&mut self, frame: u32) -> &mut Link {
        &mut self.0[usize::try_from(frame).expect("32 bits fit an address")]
    }
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Queue {
    first: u32,
    last: u32,
    len: usize,
}

impl Queue {
    pub(crate) fn new() -> Self {
        Self { first: NONE, last: NONE, len: 0 }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Appends a frame that is in no queue.
    pub(crate) fn push(&mut self, links: &mut Links, frame: u32) {
        *links.of(frame) = Link { before: self.last, after: NONE };
        match self.last {
            NONE => self.first = frame,
            last => links.of(last).after = frame,
        }
        self.last = frame;
        self.len += 1;
    }

    pub(crate) fn pop(&mut self, links: &mut Links) -> Option<u32> {
        let first = self.first;
        (first != NONE).then(|| {
            self.remove(links, first);
            first
        })
    }

    /// Takes out a frame that is in this queue.
    pub(crate) fn remove(&mut self, links: &mut Links, frame: u32) {
        let Link { before, after } = *links.of(frame);
        match before {
            NONE => self.first = after,
            before => links.of(before).after = after,
        }
        match after {
            NONE => self.last = before,
            after => links.of(after).before = before,
        }
        self.len -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_leave_a_queue_from_its_ends_and_its_middle() {
        let (mut links, mut queue) = (Links::new(8), Queue::new());
        (0..6).for_each(|frame| queue.push(&mut links, frame));
        [2, 0, 5].into_iter().for_each(|frame| queue.remove(&mut links, frame));
        queue.push(&mut links, 2);
        let left: Vec<_> = std::iter::from_fn(|| queue.pop(&mut links)).collect();
        assert_eq!((left, queue.is_empty()), (vec![1, 3, 4, 2], true));
        queue.push(&mut links, 7);
        assert_eq!((queue.pop(&mut links), queue.len()), (Some(7), 0));
    }
}
