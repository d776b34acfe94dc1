//! The structures and constants of the header for striped stores.

use std::ffi::c_void;

use store::Allocation;
use store::meta::record::Class as StoreClass;

use crate::fault::Fault;
use crate::types::Class;

/// Characters of a token's text, with the zero at its end.
pub const LANDFAST_STORE_TOKEN_SIZE: u32 = 151;
/// The region goes with this client: when its process ends without a word, the store's daemons free it.
pub const LANDFAST_STORE_EPHEMERAL: u32 = 1;

/// What a region is to be like. `landfast_store_allocation_init` sets each member to its default.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(C)]
pub struct StoreAllocation {
    /// `sizeof(landfast_store_allocation)` of the program, so that later versions may append members.
    pub struct_size: usize,
    /// `LANDFAST_STORE_EPHEMERAL`, or 0.
    pub flags: u32,
    /// The `landfast_class` of the servers; `LANDFAST_CLASS_STORAGE`.
    pub durability: u32,
    /// Bytes that lie together on one server, a multiple of 8; 1 MiB.
    pub unit: u64,
    /// Pieces; 0: as many as there are servers of the class. 0.
    pub width: u32,
    /// Copies of each byte, 1 to 3, on different servers; 1.
    pub copies: u32,
}

impl Default for StoreAllocation {
    fn default() -> Self {
        let wanted = Allocation::new(1, StoreClass::Storage);
        Self {
            struct_size: size_of::<Self>(),
            flags: 0,
            durability: Class::Storage as u32,
            unit: wanted.unit,
            width: wanted.width,
            copies: wanted.copies,
        }
    }
}

impl StoreAllocation {
    /// What is wanted; refuses what no version knows.
    pub(crate) fn wanted(&self, size: u64) -> Result<Allocation, Fault> {
        let refuse = |what, value, why| Err(Fault::Value { what, value, why });
        if self.struct_size != size_of::<Self>() {
            let size = u64::try_from(self.struct_size).unwrap_or(u64::MAX);
            let why = "set it by landfast_store_allocation_init";
            return refuse("allocation.struct_size", size, why);
        }
        if self.flags & !LANDFAST_STORE_EPHEMERAL != 0 {
            let why = "there is LANDFAST_STORE_EPHEMERAL";
            return refuse("allocation.flags", self.flags.into(), why);
        }
        let class = match self.durability {
            1 => StoreClass::Volatile,
            2 => StoreClass::Storage,
            3 => StoreClass::Pmem,
            other => {
                let why = "choose a landfast_class other than unknown";
                return refuse("allocation.durability", other.into(), why);
            }
        };
        Ok(Allocation {
            unit: self.unit,
            width: self.width,
            copies: self.copies,
            ephemeral: self.flags & LANDFAST_STORE_EPHEMERAL != 0,
            ..Allocation::new(size, class)
        })
    }
}

/// A range of a region, and the memory that it is read into or written from.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct StoreSpan {
    /// Where the range begins.
    pub offset: u64,
    /// The memory; a write does not change it.
    pub bytes: *mut c_void,
    /// How many bytes.
    pub len: usize,
}

/// No two memories overlap: each is filled by itself.
pub(crate) fn check_apart(spans: &[StoreSpan]) -> Result<(), Fault> {
    let mut ranges: Vec<(usize, usize)> = spans
        .iter()
        .filter(|span| span.len > 0)
        .map(|span| (span.bytes.addr(), span.len))
        .collect();
    ranges.sort_unstable();
    let overlap = ranges.windows(2).find(|two| two[1].0 - two[0].0 < two[0].1);
    match overlap {
        None => Ok(()),
        Some(two) => {
            let value = u64::try_from(two[1].0).unwrap_or(u64::MAX);
            Err(Fault::Value { what: "spans.bytes", value, why: "memories of spans overlap" })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn allocations_that_no_version_knows_are_refused_by_name() {
        StoreAllocation::default().wanted(1).unwrap();
        let refused = |change: fn(&mut StoreAllocation)| {
            let mut allocation = StoreAllocation::default();
            change(&mut allocation);
            allocation.wanted(1).unwrap_err().to_string()
        };
        assert!(refused(|one| one.struct_size = 8).contains("landfast_store_allocation_init"));
        assert!(refused(|one| one.flags = 2).contains("allocation.flags"));
        assert!(refused(|one| one.durability = 0).contains("allocation.durability"));
    }

    #[test]
    fn memories_that_overlap_are_refused() {
        let mut memory = [0_u8; 16];
        let mut span =
            |at: usize, len| StoreSpan { offset: 0, bytes: memory[at..].as_mut_ptr().cast(), len };
        let (whole, first, second, none) = (span(0, 16), span(0, 8), span(8, 8), span(4, 0));
        check_apart(&[second, first, none]).unwrap();
        check_apart(&[first, whole]).unwrap_err();
        check_apart(&[second, whole]).unwrap_err();
    }
}
