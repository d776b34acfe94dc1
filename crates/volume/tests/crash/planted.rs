//! Media that leave out one step of every write, as a faulty volume would.

use std::sync::Arc;

use pmem::Medium;

use crate::hooked::Hooked;

/// The step that is left out.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Planted {
    /// The note in the flog.
    FlogWrite,
    /// The persist of the data before the note.
    DataPersist,
    /// The persist of the note before the map.
    FlogPersist,
    /// The persist of the map, before the lane is used again.
    MapPersist,
}

impl Planted {
    pub(crate) const ALL: [Self; 4] =
        [Self::FlogWrite, Self::DataPersist, Self::FlogPersist, Self::MapPersist];

    /// The step is known by its length: `create` places and persists whole groups and blocks.
    pub(crate) fn medium(self, inner: Arc<dyn Medium>) -> Arc<dyn Medium> {
        let mut medium = Hooked::new(inner);
        let left_out = match self {
            Self::FlogWrite => {
                medium.on_place = Box::new(|medium, offset, bytes| match bytes.len() {
                    HALF => Ok(()),
                    _ => medium.place(offset, bytes),
                });
                return Arc::new(medium);
            }
            Self::DataPersist => 512,
            Self::FlogPersist => 16,
            Self::MapPersist => 4,
        };
        medium.on_persist =
            Box::new(
                move |medium, offset, len| {
                    if len == left_out { Ok(()) } else { medium.persist(offset, len) }
                },
            );
        Arc::new(medium)
    }
}

/// Bytes of half a flog group.
const HALF: usize = 16;
